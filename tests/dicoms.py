"""DICOM files, made by pydicom."""

import io

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

PATIENT = "Doe^Jane"
RAMP = np.arange(12 * 16, dtype=np.uint16).reshape(12, 16) * 20  # of 12 bits, up to 3820


def dataset(pixels=RAMP, syntax=ExplicitVRLittleEndian, photometric="MONOCHROME2", **tags):
    """One frame, [H, W] or [H, W, 3], and whatever tags besides."""
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = syntax
    made.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    made.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    made.SOPClassUID, made.SOPInstanceUID = SecondaryCaptureImageStorage, "1.2.3"
    made.PatientName, made.PatientID = PATIENT, "secret-17"
    made.Rows, made.Columns = pixels.shape[:2]
    made.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    if pixels.ndim == 3:
        made.PlanarConfiguration = 0
    made.PhotometricInterpretation = photometric
    made.BitsAllocated = 8 * pixels.dtype.itemsize
    made.BitsStored, made.HighBit = made.BitsAllocated, made.BitsAllocated - 1
    made.PixelRepresentation = int(pixels.dtype.kind == "i")
    order = ">" if syntax == "1.2.840.10008.1.2.2" else "<"
    made.PixelData = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
    made["PixelData"].VR = "OB" if pixels.dtype.itemsize == 1 else "OW"
    for name, value in tags.items():
        setattr(made, name, value)
    return made


def saved(made):
    """The bytes of a file."""
    file = io.BytesIO()
    made.save_as(file, enforce_file_format=True)
    return file.getvalue()


def file(*args, **tags):
    return saved(dataset(*args, **tags))
