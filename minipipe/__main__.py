"""`python -m minipipe`."""

from .cli.main import main

raise SystemExit(main())
