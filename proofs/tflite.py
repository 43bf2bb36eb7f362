"""python tflite.py MODEL PLANNED [FAULTS JUDGE...]: TensorFlow Lite Micro computes the same with a plan as without one, to the bit.

Runs both files in the unmodified interpreter of the package tflite-micro on 12 random inputs, each from a fresh interpreter and
all in one, and compares all outputs. Then moves single tensors of the plan by 16 bytes, one after the other, and asks the
command JUDGE, with the file as its last word, whether the plan is still right. One that it accepts must not change any
output; of those that it rejects, FAULTS are tried, and counted if the outputs change: a plan that nobody checks can be wrong
without any error. Prints "HEAD without a plan, HEAD with it, INPUTS, faults that change outputs, faults, moves that are
accepted"; what differs is an error.
"""

import os
import random
import struct
import subprocess
import sys
import tempfile

import numpy as np
from tflite_micro import runtime
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

INPUTS = 12
ARENA = 64 << 20
NAME = b"OfflineMemoryAllocation"


def heads(model):
    """What the runtime says of its head: it prints that to the file that is the process's standard error."""
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=ARENA)
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            interpreter.print_allocations()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        line = next(line for line in log.read().decode().splitlines() if "Arena allocation head" in line)
    return int(line.split("head")[1].split()[0])


def details(model):
    """Shape and type of each input, and how many outputs there are."""
    subgraph = schema.Model.GetRootAsModel(model, 0).Subgraphs(0)
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=ARENA)
    inputs = [interpreter.get_input_details(index) for index in range(subgraph.InputsLength())]
    return inputs, subgraph.OutputsLength()


def random_inputs(inputs):
    generator = np.random.default_rng(7)
    for _ in range(INPUTS):
        values = []
        for it in inputs:
            kind = np.dtype(it["dtype"])
            if kind.kind == "f":
                values.append(generator.uniform(-1, 1, it["shape"]).astype(kind))
            elif kind.kind == "b":
                values.append(generator.integers(0, 2, it["shape"]).astype(kind))
            else:
                limits = np.iinfo(kind)
                values.append(generator.integers(limits.min, limits.max, it["shape"], dtype=kind, endpoint=True))
        yield values


def outputs(model, each_fresh):
    """The bytes of all outputs for all inputs. Models with a state have another one if the interpreter is not a fresh one."""
    inputs, count = details(model)
    found = []
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=ARENA)
    for number, values in enumerate(random_inputs(inputs)):
        if each_fresh and number > 0:
            interpreter = runtime.Interpreter.from_bytes(model, arena_size=ARENA)
        for index, value in enumerate(values):
            interpreter.set_input(value, index)
        interpreter.invoke()
        found.append([interpreter.get_output(index).tobytes() for index in range(count)])
    return found


def record(model):
    """Where the offsets of the record are in the file, and how many."""
    root = schema.Model.GetRootAsModel(model, 0)
    for index in range(root.MetadataLength()):
        entry = root.Metadata(index)
        if entry.Name() == NAME:
            data = root.Buffers(entry.Buffer()).DataAsNumpy().tobytes()
            return model.index(data) + 12, struct.unpack_from("<i", data, 8)[0]
    sys.exit("the planned file has no record")


def is_right(judge, model):
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(model)
        file.flush()
        return subprocess.run([*judge, file.name], stdout=subprocess.DEVNULL, check=False).returncode == 0


def count_faults(planned, expected, wanted, judge):
    start, count = record(planned)
    offsets = struct.unpack_from(f"<{count}i", planned, start)
    moves = [(index, by) for index, offset in enumerate(offsets) for by in (16, -16) if offset + min(by, 0) >= 0]
    random.Random(3).shuffle(moves)
    harmful = tried = accepted = 0
    for index, by in moves:
        moved = bytearray(planned)
        struct.pack_into("<i", moved, start + 4 * index, offsets[index] + by)
        moved = bytes(moved)
        if is_right(judge, moved):
            if accepted < wanted and outputs(moved, False) != expected:
                sys.exit(f"error: tensor {index}, moved by {by}, changes the outputs and is accepted")
            accepted += 1
        elif tried < wanted:
            tried += 1
            harmful += outputs(moved, False) != expected
        if tried == wanted and accepted >= wanted:
            break
    return harmful, tried, min(accepted, wanted)


def main():
    with open(sys.argv[1], "rb") as file:
        plain = file.read()
    with open(sys.argv[2], "rb") as file:
        planned = file.read()
    expected = None
    for each_fresh in (True, False):
        expected = outputs(plain, each_fresh)
        if any(len(it) == 0 for it in expected):
            sys.exit("error: the model has no outputs")
        if outputs(planned, each_fresh) != expected:
            sys.exit("error: the outputs differ")
    faults = count_faults(planned, expected, int(sys.argv[3]), sys.argv[4:]) if len(sys.argv) > 3 else (0, 0, 0)
    print(heads(plain), heads(planned), INPUTS, *faults)


main()
