import sys

from jackfield.entrypoints.cli import main

sys.exit(main())
