"""GGUF version 3, as much of it as the comparison needs: files of tensors in whole blocks with scalar, string and
short array metadata are written as a stream; a file's tensors are found again for conversion. Format facts are in
docs of the format's authors; nothing here knows what a model is."""
import pathlib
import struct

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32

# Of a tensor type: its number in files, values a block, bytes a block.
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q8_0": (8, 32, 34)}
NAMES = {number: name for name, (number, _, _) in TYPES.items()}

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_U32, _F32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9


def tensor_bytes(kind, shape):
    """Bytes of a tensor; `shape` is row-major, its last dimension lies together and is in whole blocks."""
    _, values, size = TYPES[kind]
    if shape[-1] % values:
        raise ValueError(f"rows of {shape[-1]} values are not whole blocks of {values}")
    n = 1
    for d in shape:
        n *= d
    return n // values * size


def _text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def _value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", _BOOL, v)
    if isinstance(v, int):
        return struct.pack("<II", _U32, v)
    if isinstance(v, float):
        return struct.pack("<If", _F32, v)
    if isinstance(v, str):
        return struct.pack("<I", _STRING) + _text(v)
    raise TypeError(f"no metadata of type {type(v).__name__}")


def _padding(n):
    return -n % ALIGNMENT


def write(path, metadata, tensors, blocks):
    """Writes a file: `tensors` lists (name, kind, shape); `blocks(name, kind, shape)` yields a tensor's bytes in
    pieces, so that no more than a piece is ever in memory. The file gets its name only when it is whole. `metadata`
    is a dictionary, or a File whose metadata is taken over byte for byte."""
    part = pathlib.Path(f"{path}.part")
    with open(part, "wb") as f:
        f.write(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(getattr(metadata, "metadata", metadata))))
        f.write(metadata.metadata_bytes() if isinstance(metadata, File) else
                b"".join(_text(key) + _value(value) for key, value in metadata.items()))
        at = 0
        for name, kind, shape in tensors:
            f.write(_text(name) + struct.pack("<I", len(shape)))
            f.write(struct.pack(f"<{len(shape)}Q", *reversed(shape)))
            f.write(struct.pack("<IQ", TYPES[kind][0], at))
            size = tensor_bytes(kind, shape)
            at += size + _padding(size)
        f.write(bytes(_padding(f.tell())))
        for name, kind, shape in tensors:
            size, written = tensor_bytes(kind, shape), 0
            for piece in blocks(name, kind, shape):
                f.write(piece)
                written += len(piece)
            if written != size:
                raise ValueError(f"{name}: {written} bytes given, {size} expected")
            f.write(bytes(_padding(size)))
    part.replace(path)


class File:
    """The metadata (scalars and strings; arrays only by their length) and the tensors of a file: name to (kind,
    row-major shape, offset in the file)."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        with open(path, "rb") as f:
            magic, version, n_tensors, n_values = struct.unpack("<4sIQQ", f.read(24))
            if magic != MAGIC or version != VERSION:
                raise ValueError(f"{path} is not a GGUF file of version {VERSION}")
            self.metadata = {}
            for _ in range(n_values):
                key = self._string(f)
                self.metadata[key] = self._read(f, self._number(f, "I"))
            self._metadata_end = f.tell()
            tensors = [self._tensor(f) for _ in range(n_tensors)]
            base = f.tell() + _padding(f.tell())
        self.tensors = {name: (kind, shape, base + at) for name, kind, shape, at in tensors}

    def metadata_bytes(self):
        with open(self.path, "rb") as f:
            return f.read(self._metadata_end)[24:]

    @staticmethod
    def _number(f, code):
        return struct.unpack("<" + code, f.read(struct.calcsize(code)))[0]

    def _string(self, f):
        return f.read(self._number(f, "Q")).decode()

    def _read(self, f, kind):
        if kind == _STRING:
            return self._string(f)
        if kind != _ARRAY:
            return self._number(f, _SCALARS[kind])
        of, n = self._number(f, "I"), self._number(f, "Q")
        for _ in range(n):
            self._read(f, of)
        return n

    def _tensor(self, f):
        name, n_dims = self._string(f), self._number(f, "I")
        shape = tuple(reversed([self._number(f, "Q") for _ in range(n_dims)]))
        kind = self._number(f, "I")
        return name, NAMES.get(kind, f"type {kind}"), shape, self._number(f, "Q")
