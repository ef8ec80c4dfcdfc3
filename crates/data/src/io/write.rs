//! Writing files that are complete or not there at all, and folders that one process writes at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Writes a file by the rule of [`Output`].
pub fn write_whole(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    let mut output = Output::create(path)?;
    output.write_all(bytes).map_err(Error::io(path))?;
    output.finish()
}

/// A file on its way to its place.
///
/// A regular file is written beside its place under the name `NAME.partial`, synced and renamed: a reader sees the old file or the new one,
/// whole, and what is not [finished](Self::finish) leaves nothing behind. A symbolic link stays, and what it leads to is replaced. Anything else
/// that has the name, a device or a pipe, is written through. The path `-` is the standard output.
#[derive(Debug)]
pub struct Output {
    /// As it was named.
    path: PathBuf,
    /// Taken when it is finished.
    way: Option<Way>,
}

#[derive(Debug)]
enum Way {
    Beside { file: BufWriter<File>, partial: PathBuf, place: PathBuf },
    Through(BufWriter<File>),
    Standard(io::Stdout),
}

/// How long a file that another process writes is waited for: as long as a small one takes.
const PATIENCE: Duration = Duration::from_secs(2);

impl Output {
    /// Begins a file.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let way = Self::way(path).map_err(Error::io(path))?;
        Ok(Self { path: path.into(), way: Some(way) })
    }

    fn way(path: &Path) -> io::Result<Way> {
        if path == Path::new("-") {
            return Ok(Way::Standard(io::stdout()));
        }
        let before = match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if before.as_ref().is_some_and(|before| !before.is_file()) {
            return Ok(Way::Through(BufWriter::new(File::options().write(true).open(path)?)));
        }
        let place = behind_links(path)?;
        let mut partial = place.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let since = Instant::now();
        let file = loop {
            match lock(&partial)? {
                Some(file) => break file,
                None if since.elapsed() > PATIENCE => {
                    return Err(io::Error::other("another process is writing it"));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        // What a process that was killed had written.
        file.set_len(0)?;
        if let Some(before) = before {
            file.set_permissions(before.permissions())?;
        }
        Ok(Way::Beside { file: BufWriter::new(file), partial, place })
    }

    /// Puts the file in its place when all of it is on the disk.
    pub fn finish(mut self) -> Result<()> {
        let path = std::mem::take(&mut self.path);
        let finished = match self.way.as_mut().expect("not finished before") {
            Way::Beside { file, partial, place } => file
                .flush()
                .and_then(|()| file.get_ref().sync_all())
                .and_then(|()| fs::rename(partial, &*place))
                .and_then(|()| sync_folder(place)),
            // A pipe or a device has nothing to sync.
            Way::Through(file) => file.flush(),
            Way::Standard(stdout) => stdout.flush(),
        };
        if finished.is_ok() {
            self.way = None;
        }
        finished.map_err(Error::io(&path))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.way.as_mut().expect("not finished") {
            Way::Beside { file, .. } | Way::Through(file) => file.write(bytes),
            Way::Standard(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.way.as_mut().expect("not finished") {
            Way::Beside { file, .. } | Way::Through(file) => file.flush(),
            Way::Standard(stdout) => stdout.flush(),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(Way::Beside { partial, .. }) = &self.way {
            // The error that matters came before.
            let _ = fs::remove_file(partial);
        }
    }
}

/// A folder that this process writes, and no other, until this is dropped or the process dies.
///
/// The lock is the system's, on the file `.lock` in the folder, which says who holds it.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    /// Whether the folder was made for the lock.
    made: bool,
    _file: File,
}

/// Name of the file that is locked.
const LOCK: &str = ".lock";

impl FolderLock {
    /// Takes a folder, which is made if it is not there. A folder that another process has is an [`Error::Held`].
    pub fn take(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join(LOCK);
        loop {
            let made = !folder.exists();
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
            match lock(&path) {
                Ok(Some(mut file)) => {
                    let holder = format!("process {}\n", std::process::id());
                    file.set_len(0)
                        .and_then(|()| file.write_all(holder.as_bytes()))
                        .map_err(Error::io(&path))?;
                    return Ok(Self { folder: folder.into(), made, _file: file });
                }
                Ok(None) => return Err(Error::Held { path: folder.into(), by: holder(&path) }),
                // The folder was made by another process, which has removed it again.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => continue,
                Err(error) => return Err(Error::io(&path)(error)),
            }
        }
    }

    /// The folder has another name now.
    pub(crate) fn renamed(&mut self, folder: &Path) {
        (self.folder, self.made) = (folder.into(), false);
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Only tidiness: a file that stays holds nobody up.
        let _ = fs::remove_file(self.folder.join(LOCK));
        if self.made {
            // If nothing was written.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Who holds a lock, as its file says.
fn holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(100).read_to_string(&mut text));
    match read {
        Ok(_) if !text.trim().is_empty() => text.trim().escape_default().to_string(),
        _ => "another process".into(),
    }
}

/// Opens a file, made if it is not there, and locks it; `None` if another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            // Between opening and locking its holder may have renamed or removed it.
            Ok(()) if is_still(&file, path)? => return Ok(Some(file)),
            Ok(()) => continue,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Whether an open file has this name still.
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let own = file.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        Ok(true)
    }
}

/// The path at the end of a chain of symbolic links; it need not be there.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    /// As many as Linux follows.
    const MOST: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MOST {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {
                let target = fs::read_link(&path)?;
                path = path.parent().unwrap_or(Path::new("")).join(target);
            }
            _ => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// A new name is on disk when its folder is; only Unix opens folders.
fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    #[test]
    fn a_link_stays_and_leads_to_the_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, far] = ["file", "link", "far"].map(|name| folder.path().join(name));
        write_whole(&file, b"old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        symlink(&link, &far).unwrap();
        write_whole(&far, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!([&link, &far].iter().all(|link| fs::symlink_metadata(link).unwrap().is_symlink()));
        // Also one that leads nowhere yet.
        let [target, link] = ["later", "early"].map(|name| folder.path().join(name));
        symlink("later", &link).unwrap();
        write_whole(&link, b"now").unwrap();
        assert_eq!(fs::read(target).unwrap(), b"now");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5, "something was left behind");
    }

    #[test]
    fn a_pipe_and_a_device_are_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write_whole(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        write_whole(&null, b"away").unwrap();
        assert!(fs::metadata(&null).unwrap().file_type().is_char_device());
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_whole(&path, b"old").unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"half").unwrap();
        let error = Output::create(&path).unwrap_err().to_string();
        assert!(error.contains("another process is writing it"), "{error}");
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_has_one_writer() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run");
        let lock = FolderLock::take(&folder).unwrap();
        let error = FolderLock::take(&folder).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(lock);
        assert!(!folder.exists(), "made for the lock, and nothing was written");
        let lock = FolderLock::take(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        drop(lock);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
