//! What is a page made of? Its header, its checksum, and accessors that cannot leave it.

use std::marker::PhantomData;

use homenode_platform::bytes;

use crate::{PAGE_BYTES, PageNo};

/// Offsets of the common page header, bytes 0..32; all numbers little-endian.
///
/// The pool owns checksum, page number and LSN; the other fields belong to whoever uses the page.
pub mod header {
    /// CRC-32C (u32) of bytes 4..16384. Valid in the file only; a page in memory carries whatever
    /// was there when it was read.
    pub const CHECKSUM: usize = 0;
    /// Kind of page (u8), the user's.
    pub const PAGE_TYPE: usize = 4;
    /// Level in a tree (u8), the user's.
    pub const LEVEL: usize = 5;
    /// Flags (u16), the user's.
    pub const FLAGS: usize = 6;
    /// The page's own number (u64): a page that was written to a wrong place is found out.
    pub const PAGE_NO: usize = 8;
    /// LSN (u64) behind the last log record that changed the page.
    pub const LSN: usize = 16;
    /// Tree (u32), the user's.
    pub const TREE_ID: usize = 24;
    /// Not used by the pool (u32).
    pub const SPARE: usize = 28;
    /// Bytes of the header.
    pub const BYTES: usize = 32;
}

/// The checksum of a page's bytes: CRC-32C of everything but the checksum field.
pub fn page_checksum(page: &[u8]) -> u32 {
    crc32c::crc32c(&page[header::PAGE_TYPE..PAGE_BYTES])
}

/// Stamps number and checksum into a private copy of a page.
pub(crate) fn seal(page: &mut [u8], page_no: PageNo) {
    page[header::PAGE_NO..header::PAGE_NO + 8].copy_from_slice(&page_no.to_le_bytes());
    let checksum = page_checksum(page);
    page[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Says what is wrong with a page's bytes as they came from the file, if anything is.
pub(crate) fn verify(page: &[u8], page_no: PageNo) -> Result<(), &'static str> {
    if read_u32(page, header::CHECKSUM) != page_checksum(page) {
        if page.iter().all(|&b| b == 0) {
            return Err("it was never written");
        }
        return Err("its checksum does not match");
    }
    if read_u64(page, header::PAGE_NO) != page_no {
        return Err("it carries another page's number");
    }
    Ok(())
}

pub(crate) fn read_u32(bytes: &[u8], off: usize) -> u32 {
    u32::from_le_bytes(bytes[off..off + 4].try_into().expect("4 bytes"))
}

pub(crate) fn read_u64(bytes: &[u8], off: usize) -> u64 {
    u64::from_le_bytes(bytes[off..off + 8].try_into().expect("8 bytes"))
}

/// A page for reading; somebody else may be changing it meanwhile (see [`crate::Optimistic`]).
///
/// No offset can lead out of the page: an offset that is too large reads the page's last bytes
/// instead. That is what an optimistic reader needs, whose offsets may be torn; what it read is
/// thrown away when validation fails.
#[derive(Clone, Copy)]
pub struct PageRef<'a> {
    ptr: *const u8,
    life: PhantomData<&'a [u8]>,
}

macro_rules! load {
    ($($name:ident $ty:ty;)*) => {$(
        /// The little-endian value at `off` (any alignment; clamped into the page).
        #[inline(always)]
        #[cfg_attr(homenode_lab, track_caller)]
        pub fn $name(self, off: usize) -> $ty {
            let off = off.min(PAGE_BYTES - size_of::<$ty>());
            // SAFETY: pages are 8-byte aligned (from_raw's contract): a load at a known multiple of 8 becomes one load.
            unsafe { std::hint::assert_unchecked(self.ptr.addr() % 8 == 0) };
            // SAFETY: off..off+size lies in the page, which is made of whole aligned words; writers
            // use platform::bytes as well.
            unsafe { bytes::$name(self.ptr.add(off)) }
        }
    )*};
}

impl<'a> PageRef<'a> {
    /// # Safety
    /// `ptr` is 8-byte aligned and valid for reads of a page for `'a`; whoever writes it meanwhile
    /// uses `platform::bytes`.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(ptr: *const u8) -> PageRef<'a> {
        PageRef { ptr, life: PhantomData }
    }

    #[inline(always)]
    #[cfg_attr(homenode_lab, track_caller)]
    fn load_u8(self, off: usize) -> u8 {
        // SAFETY: clamped into the page.
        unsafe { bytes::load_u8(self.ptr.add(off.min(PAGE_BYTES - 1))) }
    }

    load! { load_u16 u16; load_u32 u32; load_u64 u64; }

    /// The byte at `off`.
    #[inline(always)]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn u8(self, off: usize) -> u8 {
        self.load_u8(off)
    }

    /// The little-endian u16 at `off`.
    #[inline(always)]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn u16(self, off: usize) -> u16 {
        self.load_u16(off)
    }

    /// The little-endian u32 at `off`.
    #[inline(always)]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn u32(self, off: usize) -> u32 {
        self.load_u32(off)
    }

    /// The little-endian u64 at `off`.
    #[inline(always)]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn u64(self, off: usize) -> u64 {
        self.load_u64(off)
    }

    /// Copies the bytes from `off` on; where the page ends first, the rest of `dst` is zeroed.
    #[inline]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn copy_to(self, off: usize, dst: &mut [u8]) {
        let off = off.min(PAGE_BYTES);
        let n = dst.len().min(PAGE_BYTES - off);
        let (inside, outside) = dst.split_at_mut(n);
        // SAFETY: off + n <= PAGE_BYTES.
        unsafe { bytes::copy_out(self.ptr.add(off), inside) };
        outside.fill(0);
    }

    /// LSN behind the last log record that changed the page.
    #[inline]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn lsn(self) -> u64 {
        self.u64(header::LSN)
    }

    /// The page's number as its header has it.
    #[inline]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn page_no(self) -> PageNo {
        self.u64(header::PAGE_NO)
    }
}

/// A page for writing: the one writer, while optimistic readers may be looking on.
///
/// Offsets out of the page are a programming error and panic.
pub struct PageMut<'a> {
    ptr: *mut u8,
    life: PhantomData<&'a mut [u8]>,
}

macro_rules! store {
    ($($name:ident $store:ident $ty:ty;)*) => {$(
        /// Stores a little-endian value at `off` (any alignment).
        #[inline(always)]
        #[cfg_attr(homenode_lab, track_caller)]
        pub fn $name(&mut self, off: usize, value: $ty) {
            assert!(off <= PAGE_BYTES - size_of::<$ty>());
            // SAFETY: inside the page, and this is its only writer.
            unsafe { bytes::$store(self.ptr.add(off), value) }
        }
    )*};
}

impl<'a> PageMut<'a> {
    /// # Safety
    /// `ptr` is 8-byte aligned and valid for reads and writes of a page for `'a`; nobody else
    /// writes it, and concurrent readers use `platform::bytes`.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(ptr: *mut u8) -> PageMut<'a> {
        PageMut { ptr, life: PhantomData }
    }

    store! {
        write_u8 store_u8 u8;
        write_u16 store_u16 u16;
        write_u32 store_u32 u32;
        write_u64 store_u64 u64;
    }

    /// Copies `src` to `off`.
    #[inline]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn write_bytes(&mut self, off: usize, src: &[u8]) {
        assert!(off <= PAGE_BYTES && src.len() <= PAGE_BYTES - off);
        // SAFETY: inside the page, and this is its only writer.
        unsafe { bytes::copy_in(self.ptr.add(off), src) }
    }

    /// Moves `len` bytes from offset `src` to offset `dst`; the ranges may overlap.
    #[inline]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn move_within(&mut self, src: usize, dst: usize, len: usize) {
        assert!(len <= PAGE_BYTES && src.max(dst) <= PAGE_BYTES - len);
        // SAFETY: both ranges lie inside the page, and this is its only writer.
        unsafe { bytes::move_within(self.ptr, src, dst, len) }
    }

    /// Zeroes `len` bytes from `off` on.
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn zero(&mut self, off: usize, len: usize) {
        assert!(off <= PAGE_BYTES && len <= PAGE_BYTES - off);
        let zeros = [0u8; 512];
        let mut at = off;
        while at < off + len {
            let n = (off + len - at).min(zeros.len());
            self.write_bytes(at, &zeros[..n]);
            at += n;
        }
    }

    /// Stamps the LSN behind the record that describes the change.
    #[inline]
    #[cfg_attr(homenode_lab, track_caller)]
    pub fn set_lsn(&mut self, lsn: u64) {
        self.write_u64(header::LSN, lsn);
    }

    /// The same page for reading.
    #[inline(always)]
    pub fn page(&self) -> PageRef<'_> {
        // SAFETY: the same bytes for a shorter life.
        unsafe { PageRef::from_raw(self.ptr) }
    }

    /// The page's bytes. Nobody writes while the borrow lasts.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this is the page's only writer, and it is borrowed.
        unsafe { std::slice::from_raw_parts(self.ptr, PAGE_BYTES) }
    }
}

/// A page in private memory: for loaders and recovery, which build pages outside the pool.
#[repr(align(64))]
struct AlignedPage([u8; PAGE_BYTES]);

/// A private, aligned page.
pub struct PageBuf(Box<AlignedPage>);

impl PageBuf {
    /// A page of zeros.
    pub fn zeroed() -> PageBuf {
        PageBuf(Box::new(AlignedPage([0; PAGE_BYTES])))
    }

    /// The page for reading.
    pub fn page(&self) -> PageRef<'_> {
        // SAFETY: aligned, a page long, and borrowed: nobody writes it.
        unsafe { PageRef::from_raw(self.0.0.as_ptr()) }
    }

    /// The page for writing.
    pub fn page_mut(&mut self) -> PageMut<'_> {
        // SAFETY: aligned, a page long, and exclusively borrowed.
        unsafe { PageMut::from_raw(self.0.0.as_mut_ptr()) }
    }

    /// The page's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.0
    }

    /// The page's bytes for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

impl Clone for PageBuf {
    fn clone(&self) -> PageBuf {
        let mut copy = PageBuf::zeroed();
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_offset_leads_out_of_the_page() {
        let mut buf = PageBuf::zeroed();
        buf.bytes_mut()[PAGE_BYTES - 8..].copy_from_slice(&7u64.to_le_bytes());
        let page = buf.page();
        assert_eq!(page.u64(usize::MAX), 7);
        assert_eq!(page.u64(PAGE_BYTES - 3), 7);
        assert_eq!(page.u8(PAGE_BYTES), 0);
        let mut out = [9u8; 12];
        page.copy_to(PAGE_BYTES - 8, &mut out);
        assert_eq!(out, [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        page.copy_to(usize::MAX, &mut out);
        assert_eq!(out, [0; 12]);
    }

    #[test]
    fn a_sealed_page_verifies_and_any_flipped_bit_is_found() {
        let mut buf = PageBuf::zeroed();
        buf.page_mut().write_bytes(100, b"hello");
        seal(buf.bytes_mut(), 42);
        assert_eq!(verify(buf.bytes(), 42), Ok(()));
        assert!(verify(buf.bytes(), 43).is_err());
        for at in [0, 4, 8, 100, PAGE_BYTES - 1] {
            buf.bytes_mut()[at] ^= 0x10;
            assert!(verify(buf.bytes(), 42).is_err(), "{at}");
            buf.bytes_mut()[at] ^= 0x10;
        }
        assert_eq!(verify(PageBuf::zeroed().bytes(), 0), Err("it was never written"));
    }

    #[test]
    #[should_panic]
    fn writing_out_of_the_page_panics() {
        PageBuf::zeroed().page_mut().write_u32(PAGE_BYTES - 3, 1);
    }
}
