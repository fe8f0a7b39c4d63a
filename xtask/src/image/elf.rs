//! What programs say of themselves in their headers.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// Checks that a program needs no dynamic linker, because the image has none.
pub(super) fn check_static(program: &Path) -> anyhow::Result<()> {
    let bytes =
        std::fs::read(program).with_context(|| format!("no program {}", program.display()))?;
    ensure!(
        is_static(&bytes),
        "{} is not linked statically",
        program.display()
    );
    Ok(())
}

/// Returns the number of the processor that a program is for.
pub(super) fn machine(program: &Path) -> anyhow::Result<[u8; 2]> {
    let read = || -> std::io::Result<[u8; 2]> {
        let mut header = [0; 20];
        std::fs::File::open(program)?.read_exact(&mut header)?;
        Ok([header[18], header[19]])
    };
    read().with_context(|| format!("reading {}", program.display()))
}

/// Returns whether a 64-bit little-endian ELF file names no interpreter.
pub(super) fn is_static(elf: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        let number = bytes
            .iter()
            .rev()
            .fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        usize::try_from(number).ok()
    };
    let headers = || -> Option<bool> {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        // all headers must be present, else the file is cut off
        elf.get(start..start.checked_add(count.checked_mul(size)?)?)?;
        let mut types = (0..count).map(|i| number(start + i * size, 4));
        Some(types.all(|kind| kind.is_some_and(|kind| kind != INTERPRETER as usize)))
    };
    elf.starts_with(b"\x7fELF\x02\x01") && headers() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(types: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = types.len() as u8;
        for kind in types {
            let at = bytes.len();
            bytes.resize(at + 56, 0);
            bytes[at] = *kind;
        }
        bytes
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert!(is_static(&elf(&[1, 2])));
        assert!(!is_static(&elf(&[1, 3])));
        assert!(!is_static(&elf(&[1])[..70]), "cut off");
        assert!(!is_static(b"#!/bin/sh\n"));
    }
}
