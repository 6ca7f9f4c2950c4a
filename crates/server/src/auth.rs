//! Is the client who it says it is? What is asked of it before its session begins.

use std::net::IpAddr;

use homenode_scram::{Binding, Exchange, Verifier};
use homenode_types::{Error, Result, SqlState};

use crate::backend::Role;
use crate::rules::{Method, Rules};
use crate::startup::{DATABASE, Start};
use crate::tls::Certificate;
use crate::wire::{self, Fields};

const SCRAM: &str = "SCRAM-SHA-256";
const SCRAM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// What decides who is let in.
pub(crate) struct Access {
    pub(crate) rules: Rules,
    /// With one, encryption is offered.
    pub(crate) certificate: Option<Certificate>,
    /// Keeps answers about names that are no roles the same (see [`Verifier::of_nobody`]).
    secret: [u8; 32],
}

impl Access {
    pub(crate) fn new(rules: Rules, certificate: Option<Certificate>) -> Result<Access> {
        Ok(Access { rules, certificate, secret: homenode_scram::new_secret()? })
    }
}

/// A client that has still to prove who it is.
pub(crate) struct Pending {
    pub(crate) hello: Start,
    encrypted: bool,
    verifier: Option<Verifier>,
    /// Once the client has chosen how.
    exchange: Option<Exchange>,
}

/// What follows a message of the exchange.
pub(crate) enum Step {
    /// The client's next one.
    More,
    /// It is who it says it is.
    Proven,
}

/// What is asked of a client.
pub(crate) enum Asked {
    Nothing(Start),
    Proof(Box<Pending>),
}

impl Access {
    /// Decides what is asked of the client that says hello, and asks it.
    ///
    /// # Errors
    /// 28000 where no rule lets it in, or the role may not log in.
    pub(crate) fn ask(
        &self,
        hello: Start,
        client: IpAddr,
        encrypted: bool,
        role: Option<Role>,
        is_member: &dyn Fn(&str) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<Asked> {
        let user = hello.parameters.user.clone();
        let refused = |message: String| Err(Error::new(SqlState::INVALID_AUTHORIZATION, message));
        let how = if encrypted { "SSL encryption" } else { "no encryption" };
        let connection = format!("host \"{client}\", user \"{user}\", database \"{DATABASE}\", {how}");
        match self.rules.method(client, encrypted, &user, is_member) {
            None => refused(format!("no pg_hba.conf entry for {connection}")),
            Some(Method::Reject) => refused(format!("pg_hba.conf rejects connection for {connection}")),
            Some(Method::Trust) => match role {
                None if !self.rules.unknown_names => refused(format!("role \"{user}\" does not exist")),
                Some(role) if !role.login => refused(not_permitted(&user)),
                _ => Ok(Asked::Nothing(hello)),
            },
            Some(Method::Scram) => {
                // Whether the role is there and has a password must not show before the proof.
                let nobody = || Verifier::of_nobody(&user, &self.secret);
                let known = role.filter(|role| role.login && !role.expired).and_then(|role| role.verifier);
                let verifier = known.as_deref().and_then(Verifier::parse).unwrap_or_else(nobody);
                wire::authentication_sasl(out, if encrypted { &[SCRAM_PLUS, SCRAM] } else { &[SCRAM] });
                Ok(Asked::Proof(Box::new(Pending { hello, encrypted, verifier: Some(verifier), exchange: None })))
            }
        }
    }

    /// Takes a message of the exchange.
    ///
    /// # Errors
    /// 28P01 when the proof fails; 08P01 for what is no message of the exchange.
    pub(crate) fn proceed(&self, pending: &mut Pending, tag: u8, body: &[u8], out: &mut Vec<u8>) -> Result<Step> {
        if tag != b'p' {
            let message = format!("expected SASL response, got message type {tag}");
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        let Some(exchange) = pending.exchange.take() else {
            let mut fields = Fields::new(body);
            let mechanism = fields.text()?;
            let message = fields.sized()?.unwrap_or_default();
            fields.end()?;
            let certificate = self.certificate.as_ref().filter(|_| pending.encrypted);
            let plus = mechanism == SCRAM_PLUS && certificate.is_some();
            let verifier = pending.verifier.take().filter(|_| plus || mechanism == SCRAM).ok_or_else(|| {
                Error::new(SqlState::PROTOCOL_VIOLATION, "client selected an invalid SASL authentication mechanism")
            })?;
            let binding = certificate.map_or(Binding::None, |certificate| Binding::Offered(certificate.hash()));
            let (exchange, answer) = Exchange::begin(verifier, message, plus, binding)?;
            wire::authentication(out, wire::SASL_CONTINUE, &answer);
            pending.exchange = Some(exchange);
            return Ok(Step::More);
        };
        match exchange.finish(body)? {
            Some(answer) => {
                wire::authentication(out, wire::SASL_FINAL, &answer);
                Ok(Step::Proven)
            }
            None => {
                let user = &pending.hello.parameters.user;
                let message = format!("password authentication failed for user \"{user}\"");
                Err(Error::new(SqlState::INVALID_PASSWORD, message))
            }
        }
    }
}

fn not_permitted(user: &str) -> String {
    format!("role \"{user}\" is not permitted to log in")
}
