//! Where are pages on disk? The page file: its header page, growth, and sync.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use homenode_platform::atomic::{AtomicBool, Ordering::SeqCst};
use homenode_platform::fs::File;
use homenode_platform::sync::Mutex;

use crate::page::{PageBuf, read_u32, read_u64, seal, verify};
use crate::{NO_PAGE, PAGE_BYTES, PageNo, PoolError};

/// What a failed sync is reported to.
pub(crate) type FatalHook = Box<dyn Fn(&str) + Send + Sync>;

const MAGIC: &[u8; 8] = b"HNPAGES\0";
const FORMAT_VERSION: u32 = 1;
/// Offsets in the header page, behind the common page header.
const AT_MAGIC: usize = 32;
const AT_VERSION: usize = 40;
const AT_PAGE_BYTES: usize = 44;
const AT_FILE_ID: usize = 48;

/// The page file.
pub(crate) struct PageFile {
    file: File,
    /// A sync failed: pages the kernel reported as clean may be lost, so nothing counts any more.
    broken: AtomicBool,
    on_fatal: Mutex<Option<FatalHook>>,
}

impl PageFile {
    /// Takes an empty file and writes its header page, or checks the header page of another.
    pub(crate) fn open(file: File, file_id: u64) -> Result<PageFile, PoolError> {
        let file = PageFile { file, broken: AtomicBool::new(false), on_fatal: Mutex::new(None) };
        if file.len()? == 0 {
            file.write_header(file_id)?;
        } else {
            file.check_header(file_id)?;
        }
        Ok(file)
    }

    fn write_header(&self, file_id: u64) -> Result<(), PoolError> {
        let mut page = PageBuf::zeroed();
        let bytes = page.bytes_mut();
        bytes[AT_MAGIC..AT_MAGIC + 8].copy_from_slice(MAGIC);
        bytes[AT_VERSION..AT_VERSION + 4].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[AT_PAGE_BYTES..AT_PAGE_BYTES + 4].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        bytes[AT_FILE_ID..AT_FILE_ID + 8].copy_from_slice(&file_id.to_le_bytes());
        seal(bytes, NO_PAGE);
        self.write(NO_PAGE, page.bytes()).map_err(|e| extend_error(e, PAGE_BYTES as u64))?;
        self.sync()
    }

    fn check_header(&self, file_id: u64) -> Result<(), PoolError> {
        let mut page = PageBuf::zeroed();
        self.file.read_exact_at(page.bytes_mut(), 0).map_err(|e| read_error(NO_PAGE, e))?;
        let bytes = page.bytes();
        if &bytes[AT_MAGIC..AT_MAGIC + 8] != MAGIC {
            return Err(PoolError::Format("it is not a page file".into()));
        }
        let version = read_u32(bytes, AT_VERSION);
        if version != FORMAT_VERSION {
            return Err(PoolError::Format(format!(
                "it has format version {version}; this program knows version {FORMAT_VERSION}"
            )));
        }
        verify(bytes, NO_PAGE).map_err(|reason| PoolError::Damaged { page_no: NO_PAGE, reason })?;
        let page_bytes = read_u32(bytes, AT_PAGE_BYTES);
        if page_bytes as usize != PAGE_BYTES {
            return Err(PoolError::Format(format!("its pages have {page_bytes} bytes")));
        }
        let found = read_u64(bytes, AT_FILE_ID);
        if file_id != 0 && found != file_id {
            return Err(PoolError::Format(format!(
                "it belongs to another database (id {found:016x}, expected {file_id:016x})"
            )));
        }
        Ok(())
    }

    pub(crate) fn set_fatal_hook(&self, hook: FatalHook) {
        *self.on_fatal.lock() = Some(hook);
    }

    pub(crate) fn len(&self) -> Result<u64, PoolError> {
        self.file.len().map_err(|e| PoolError::Extend { source: Arc::new(e) })
    }

    /// Reads one page, parking the task; behind the file's end there are zeros.
    pub(crate) fn read(&self, page_no: PageNo, page: &mut [u8]) -> Result<(), PoolError> {
        match self.file.read_task_at(page, offset(page_no)) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                page.fill(0);
                Ok(())
            }
            Err(e) => Err(read_error(page_no, e)),
        }
    }

    /// Reads consecutive pages with one call, blocking the thread; returns how many came whole.
    pub(crate) fn read_run(&self, first: PageNo, pages: &mut [IoSliceMut<'_>]) -> Result<usize, PoolError> {
        let bytes = self.file.read_vectored_at(pages, offset(first)).map_err(|e| read_error(first, e))?;
        Ok(bytes / PAGE_BYTES)
    }

    /// As [`PageFile::read_run`], of what the system has in memory.
    pub(crate) fn read_run_cached(&self, first: PageNo, pages: &mut [IoSliceMut<'_>]) -> Result<usize, PoolError> {
        let bytes = self.file.read_cached_vectored_at(pages, offset(first)).map_err(|e| read_error(first, e))?;
        Ok(bytes / PAGE_BYTES)
    }

    /// Has the system read consecutive pages into its memory meanwhile.
    pub(crate) fn will_need(&self, first: PageNo, count: usize) {
        self.file.will_need(offset(first), (count * PAGE_BYTES) as u64);
    }

    /// Writes consecutive pages with one call.
    pub(crate) fn write_run(&self, first: PageNo, pages: &[IoSlice<'_>]) -> io::Result<()> {
        self.check_sound()?;
        self.file.write_vectored_at(pages, offset(first))
    }

    /// Writes consecutive pages from one buffer.
    pub(crate) fn write(&self, first: PageNo, bytes: &[u8]) -> io::Result<()> {
        self.check_sound()?;
        self.file.write_all_at(bytes, offset(first))
    }

    fn check_sound(&self) -> io::Result<()> {
        if self.broken.load(SeqCst) {
            return Err(io::Error::other("an earlier sync of the page file failed"));
        }
        Ok(())
    }

    /// Makes sure that pages `first .. first + count` have disk space.
    pub(crate) fn reserve(&self, first: PageNo, count: u64) -> Result<(), PoolError> {
        let bytes = count * PAGE_BYTES as u64;
        self.file.allocate(offset(first), bytes).map_err(|e| extend_error(e, bytes))
    }

    /// Makes everything written so far durable. A failure is never retried: after a failed fsync
    /// the kernel drops the dirty mark, so a second one would succeed without having written
    /// anything (PostgreSQL's "fsyncgate", 2018).
    pub(crate) fn sync(&self) -> Result<(), PoolError> {
        let result = self.check_sound().and_then(|()| self.file.sync_data());
        result.map_err(|e| {
            self.broken.store(true, SeqCst);
            let message = format!("fsync of the page file failed: {e}");
            match &*self.on_fatal.lock() {
                Some(hook) => hook(&message),
                None => {
                    eprintln!("homenode: {message}");
                    std::process::abort();
                }
            }
            PoolError::Sync { source: Arc::new(e) }
        })
    }
}

fn offset(page_no: PageNo) -> u64 {
    page_no * PAGE_BYTES as u64
}

fn read_error(page_no: PageNo, e: io::Error) -> PoolError {
    PoolError::Read { page_no, source: Arc::new(e) }
}

fn extend_error(e: io::Error, bytes: u64) -> PoolError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match e.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => PoolError::DiskFull { bytes },
        _ => PoolError::Extend { source: Arc::new(e) },
    }
}
