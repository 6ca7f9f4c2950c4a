//! Which certificate does the server show, and how do bytes go through TLS? The library `rustls` does the work.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::error::ServerError;

/// Plain bytes given to the library in one go: what one round of writing can hold up.
const PIECE_BYTES: usize = 64 << 10;

/// A certificate with its key, ready for connections.
#[derive(Clone)]
pub struct Certificate {
    config: Arc<ServerConfig>,
    hash: Arc<[u8]>,
}

impl Certificate {
    /// Reads a chain of certificates, the server's own first, and its key, both in PEM.
    ///
    /// # Errors
    /// [`ServerError::Certificate`] naming the file.
    pub fn read(chain: &Path, key: &Path) -> Result<Certificate, ServerError> {
        let wrong = |path: &Path, what: String| ServerError::Certificate { path: path.to_owned(), what };
        let certificates = CertificateDer::pem_file_iter(chain)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(chain, error.to_string()))?;
        let own = certificates.first().ok_or_else(|| wrong(chain, "there is no certificate in it".to_owned()))?;
        let hash = endpoint_hash(own).ok_or_else(|| wrong(chain, "the certificate cannot be read".to_owned()))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private))
            .map_err(|error| wrong(key, error.to_string()))?;
        // What clients from 17 on ask for (the manual, "SSL Session Encryption").
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Certificate { config: Arc::new(config), hash: hash.into() })
    }

    /// What a client that binds its proof to the connection has to name: `tls-server-end-point` (RFC 5929, section 4.1).
    pub(crate) fn hash(&self) -> &[u8] {
        &self.hash
    }
}

/// The certificate's hash by the hash function of its own signature; SHA-256 instead of MD5 and SHA-1.
fn endpoint_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER, ... }, signature } (RFC 5280)
    let (body, _) = der_element(certificate, 0x30)?;
    let (_, rest) = der_element(body, 0x30)?;
    let (algorithm, _) = der_element(rest, 0x30)?;
    let (oid, _) = der_element(algorithm, 0x06)?;
    // sha384WithRSAEncryption, ecdsa-with-SHA384, sha512WithRSAEncryption, ecdsa-with-SHA512 (RFC 4055, RFC 5758).
    Some(match oid {
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c" | b"\x2a\x86\x48\xce\x3d\x04\x03\x03" => {
            Sha384::digest(certificate).to_vec()
        }
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d" | b"\x2a\x86\x48\xce\x3d\x04\x03\x04" => {
            Sha512::digest(certificate).to_vec()
        }
        _ => Sha256::digest(certificate).to_vec(),
    })
}

/// Contents of the element at the start of `bytes`, which has to have this tag, and what is behind it (X.690, DER).
fn der_element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = behind;
    }
    let element = rest.split_at_checked(length)?;
    (found == tag).then_some(element)
}

/// A client's socket.
pub(crate) enum Socket {
    Plain(TcpStream),
    Encrypted(Box<Encrypted>),
    /// While one becomes the other.
    None,
}

/// A socket with TLS over it.
pub(crate) struct Encrypted {
    stream: TcpStream,
    tls: ServerConnection,
}

impl Socket {
    /// What the system knows.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Encrypted(encrypted) => &mut encrypted.stream,
            Socket::None => unreachable!("a socket is none only inside encrypt"),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Socket::Encrypted(_))
    }

    /// From now on bytes are encrypted; the handshake begins with the client's next ones.
    pub(crate) fn encrypt(&mut self, certificate: &Certificate) -> io::Result<()> {
        let tls = ServerConnection::new(certificate.config.clone()).map_err(io::Error::other)?;
        *self = match std::mem::replace(self, Socket::None) {
            Socket::Plain(stream) => Socket::Encrypted(Box::new(Encrypted { stream, tls })),
            other => other,
        };
        Ok(())
    }

    /// Encrypted bytes that wait for the socket.
    pub(crate) fn has_pending(&self) -> bool {
        matches!(self, Socket::Encrypted(encrypted) if encrypted.tls.wants_write())
    }

    /// Reads plain bytes. Zero is the end; `WouldBlock`: nothing more for now.
    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Encrypted(encrypted) => encrypted.read(chunk),
            other => other.stream().read(chunk),
        }
    }

    /// Writes plain bytes; returns how many of them are taken. Those are on their way, but may wait ([`Socket::has_pending`]).
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Encrypted(encrypted) => encrypted.write(bytes),
            other => other.stream().write(bytes),
        }
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Encrypted(encrypted) => encrypted.flush(),
            _ => Ok(()),
        }
    }
}

impl Encrypted {
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(chunk) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            match self.tls.read_tls(&mut self.stream) {
                // The end without TLS saying so first: whoever is between could have cut it off. As in PostgreSQL, messages have
                // lengths of their own, so it is only an end.
                Ok(0) => return Ok(0),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let processed = self.tls.process_new_packets();
            // The handshake's answers, or the alert that says what was wrong.
            match self.flush() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            if let Err(error) = processed {
                tracing::info!(%error, "TLS failed");
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let count = self.tls.writer().write(&bytes[..bytes.len().min(PIECE_BYTES)])?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate's frame with an empty body and this signature algorithm.
    fn certificate(oid: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, body: &[u8]| [&[tag, body.len() as u8], body].concat();
        let algorithm = wrap(0x30, &wrap(0x06, oid));
        wrap(0x30, &[wrap(0x30, b""), algorithm, wrap(0x03, b"\0")].concat())
    }

    #[test]
    fn the_hash_is_the_signatures_own() {
        let sha256 = certificate(b"\x2a\x86\x48\xce\x3d\x04\x03\x02");
        assert_eq!(endpoint_hash(&sha256), Some(Sha256::digest(&sha256).to_vec()));
        let sha384 = certificate(b"\x2a\x86\x48\xce\x3d\x04\x03\x03");
        assert_eq!(endpoint_hash(&sha384), Some(Sha384::digest(&sha384).to_vec()));
        let sha512 = certificate(b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d");
        assert_eq!(endpoint_hash(&sha512), Some(Sha512::digest(&sha512).to_vec()));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..60)) {
            let _ = endpoint_hash(&bytes);
        }
    }
}
