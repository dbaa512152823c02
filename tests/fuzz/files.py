"""Small valid files of every format that is read, to be damaged."""

import gzip
import io
import struct
import tarfile
import zipfile
import zlib

import numpy as np
from PIL import Image
from scipy.io import savemat

IMAGES = np.arange(6 * 8 * 8, dtype=np.uint8).reshape(6, 8, 8)
LABELS = np.array([0, 1, 2, 0, 1, 2])
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
CIFAR = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def npz(method=zipfile.ZIP_DEFLATED, **members):
    """An archive of members that are what they are, whole arrays or not."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as pack:
        for name, content in members.items():
            pack.writestr(zipfile.ZipInfo(f"{name}.npy"), content, method)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def idx(array):
    """MNIST's form, not compressed."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def tar(form=tarfile.USTAR_FORMAT, names=CIFAR, rows=2, more=0):
    """CIFAR's archive, not compressed."""
    content, file = bytes(rows * 3073 + more), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as pack:
        for name in names:
            info = tarfile.TarInfo(f"cifar/{name}")
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    return file.getvalue()


def packed(content):
    return gzip.compress(content, mtime=0)


def mat(compress=False, version="5", **arrays):
    file = io.BytesIO()
    savemat(file, arrays, format=version, do_compression=compress)
    content = file.getvalue()
    told = b"MATLAB 5.0 MAT-file".ljust(116)  # instead of the time
    return told + content[116:] if version == "5" else content


def picture(form, mode="RGB", size=(12, 9)):
    file = io.BytesIO()
    image = Image.new("RGB", size, (200, 100, 7))
    image.paste((7, 100, 200), (0, 0, size[0] // 2, size[1] // 2))
    image.convert(mode).save(file, form)
    return file.getvalue()


def with_checksums(png):
    """Sets right the checksums of a PNG's chunks, so that what they hold is looked at."""
    place, mended = 8, png[:8]
    while place + 12 <= len(png):
        size = struct.unpack(">I", png[place : place + 4])[0]
        body = png[place + 4 : place + 8 + size]
        mended += png[place : place + 4] + body + struct.pack(">I", zlib.crc32(body))
        place += 12 + size
    return mended + png[place:]


def csv(separator=","):
    lines = ["a,b,label,client", "1,2.5,x,Oslo", '3,-4e2,"y",Bergen', "5,0,x,Oslo", "7,8,y,Bergen"]
    return ("\r\n".join(lines) + "\r\n").replace(",", separator).encode()


def parquet(columns, **options):
    import pyarrow
    from pyarrow import parquet as writer

    file = io.BytesIO()
    writer.write_table(pyarrow.table(columns), file, **options)
    return file.getvalue()
