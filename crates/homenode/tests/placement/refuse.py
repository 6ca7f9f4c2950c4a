"""Runs a command whose system calls of memory policy are refused with EPERM, as containers do (a seccomp filter).

usage: refuse.py COMMAND...
"""

import ctypes
import os
import platform
import struct
import sys

# mbind, set_mempolicy, migrate_pages, move_pages (arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h)
REFUSED = {"x86_64": [237, 238, 256, 279], "aarch64": [235, 237, 238, 239]}[platform.machine()]
LOAD_NUMBER = (0x20, 0, 0, 0)
ALLOW = (0x06, 0, 0, 0x7FFF0000)
REFUSE = (0x06, 0, 0, 0x00050000 | 1)

program = [LOAD_NUMBER]
for at, number in enumerate(REFUSED):
    # Equal: on to the last instruction.
    program.append((0x15, len(REFUSED) - at, 0, number))
program += [ALLOW, REFUSE]
code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
    PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(Program(len(program), code))
):
    sys.exit(f"refuse.py: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
