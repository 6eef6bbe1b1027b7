from vendi_guidance.commands.generate import main

main()
