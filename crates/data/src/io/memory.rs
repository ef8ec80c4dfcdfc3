//! Memory for what files hold. A system that has none left gives an error instead of ending the process.

use std::path::Path;

use crate::error::{Error, Result};

/// Room for `more` items behind those there are, and for no others. `place` is the variable or the part of the file that needs it.
pub(crate) fn grow<T>(items: &mut Vec<T>, more: usize, path: &Path, place: &str) -> Result<()> {
    items.try_reserve_exact(more).map_err(|_| {
        let count = items.len().saturating_add(more);
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        Error::Memory { path: path.into(), place: place.into(), bytes }
    })
}

/// An empty vector with room for `count` items.
pub(crate) fn room<T>(count: usize, path: &Path, place: &str) -> Result<Vec<T>> {
    let mut items = Vec::new();
    grow(&mut items, count, path, place)?;
    Ok(items)
}

/// `count` items of the same value.
pub(crate) fn filled<T: Clone>(value: T, count: usize, path: &Path, place: &str) -> Result<Vec<T>> {
    let mut items = room(count, path, place)?;
    items.resize(count, value);
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error_with_file_place_and_bytes() {
        let wanted = isize::MAX as usize / 4 - 1;
        let message = room::<f32>(wanted, Path::new("x.npy"), "u").unwrap_err().to_string();
        assert_eq!(message, format!("x.npy: u: {} bytes of memory are needed and cannot be had", 4 * wanted));
        let mut items = vec![1u8; 3];
        let message = grow(&mut items, usize::MAX, Path::new("x"), "u").unwrap_err().to_string();
        assert!(message.contains(&u64::MAX.to_string()), "{message}");
        assert_eq!(filled(7u8, 3, Path::new("x"), "u").unwrap(), [7; 3]);
    }
}
