"""`python -m vendi_guidance` is the command `vendi-guidance`."""

from vendi_guidance.commands import main

main()
