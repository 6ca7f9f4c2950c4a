//! How is a catalog entry or a checkpoint written down? Little-endian numbers, texts with their length, lists with their count.

/// Appends fields to a byte string.
#[derive(Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
    }

    pub fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub fn list<T>(&mut self, items: &[T], mut one: impl FnMut(&T, &mut Encoder)) {
        self.u32(items.len() as u32);
        for item in items {
            one(item, self);
        }
    }

    pub fn option<T>(&mut self, item: Option<&T>, one: impl FnOnce(&T, &mut Encoder)) {
        self.u8(item.is_some() as u8);
        if let Some(item) = item {
            one(item, self);
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Takes fields off a byte string; None when it is too short or otherwise wrong.
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder(bytes)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Decoder<'a>) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()? as usize;
        let mut items = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            items.push(one(self)?);
        }
        Some(items)
    }

    #[allow(clippy::option_option, reason = "the outer one says whether the bytes were sound")]
    pub fn option<T>(&mut self, one: impl FnOnce(&mut Decoder<'a>) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            _ => one(self).map(Some),
        }
    }
}
