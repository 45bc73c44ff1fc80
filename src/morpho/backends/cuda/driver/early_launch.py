"""`cuLaunchKernel` for kernels that wait themselves for those before them: `cuLaunchKernelEx`, with the attribute that
lets them come early where the last argument is not null; or the plain function, where a driver or a chip has none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum

from morpho.backends.code.compiler.code import addresses_of
from morpho.backends.code.native import native
from morpho.backends.code.typed import NULL, Address, Global, Pointer, Words, i32, i64, local
from morpho.base.target import isa_named

LEAST_DRIVER = 12040  # graphs hold such launches from CUDA 12.3 on
PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
Plain = Callable[[Address, i32, i32, i32, i32, i32, i32, i32, Address, Address, Address], i32]
Extended = Callable[[Words, Address, Address, Address], i32]
plain_function = Global("plain_function", Plain)  # cuLaunchKernel
early_function = Global("early_function", Extended)  # cuLaunchKernelEx


class Attribute(IntEnum):
    """A CUlaunchAttribute, as 32-bit words."""

    KIND = 0
    VALUE = 2
    SIZE = 18


class Config(IntEnum):
    """A CUlaunchConfig, as 64-bit words; the grid, the block and the bytes of shared memory are seven of 32 bits."""

    STREAM = 4
    ATTRIBUTES = 5
    COUNT = 6
    SIZE = 7


@native()
def plain_set(function: Plain) -> None:
    plain_function[0] = function


@native()
def plain_launch(kernel: Address, gx: i32, gy: i32, gz: i32, bx: i32, by: i32, bz: i32, shared: i32, stream: Address,
                 arguments: Address, early: Address) -> i32:
    launch: Plain = plain_function[0]
    return launch(kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, NULL)


@native()
def early_set(function: Extended) -> None:
    early_function[0] = function


@native()
def early_launch(kernel: Address, gx: i32, gy: i32, gz: i32, bx: i32, by: i32, bz: i32, shared: i32, stream: Address,
                 arguments: Address, early: Address) -> i32:
    attribute = local(i32, Attribute.SIZE)
    for i in range(Attribute.SIZE):
        attribute[i] = 0
    attribute[Attribute.KIND] = PROGRAMMATIC
    attribute[Attribute.VALUE] = 1
    config = local(i64, Config.SIZE)
    sizes = Pointer[i32](config)
    sizes[0], sizes[1], sizes[2] = gx, gy, gz
    sizes[3], sizes[4], sizes[5] = bx, by, bz
    sizes[6] = shared
    config[Config.STREAM] = stream
    config[Config.ATTRIBUTES] = attribute
    config[Config.COUNT] = i64(early is not None)
    launch: Extended = early_function[0]
    return launch(config, kernel, arguments, NULL)


def launch_function(plain: int, extended: int) -> int:
    """The address of what launches, given those of `cuLaunchKernel` and, 0 where kernels do not wait themselves, of
    `cuLaunchKernelEx`."""
    name, *parts = ("early launch", early_set, early_launch) if extended else ("launch", plain_set, plain_launch)
    setter, launch = addresses_of(name, *parts, isa=isa_named("native"))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(setter)(extended or plain)
    return int(launch)
