from vendi_guidance.commands.evaluate import main

main()
