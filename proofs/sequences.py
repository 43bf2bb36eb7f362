# Runs tests/c/chunks.c of the drop-in, built as a library, on the ggml in any library of a Python package: a module written in C
# needs the interpreter's names to be loaded at all.
#
#   python3 sequences.py libchunks.so LIBRARY libsteeve_ggml.so one|two SEQUENCES [exact] [edges]
import ctypes
import sys

arguments = [argument.encode() for argument in sys.argv[1:]]
library = ctypes.CDLL(sys.argv[1])
sys.exit(library.run(len(arguments), (ctypes.c_char_p * len(arguments))(*arguments)))
