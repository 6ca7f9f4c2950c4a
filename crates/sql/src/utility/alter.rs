//! How are ALTER TABLE and ALTER INDEX written? Action by action: the library reads those that it knows, readers of our own the rest.

use super::read::sequence_options_until;
use super::reader::Reader;
use super::{Name, SequenceOptions, Utility};
use homenode_types::{Error, Result};
use sqlparser::ast;

/// One action of ALTER TABLE.
#[allow(clippy::large_enum_variant, reason = "one for each statement")]
#[derive(Clone, PartialEq, Debug)]
pub enum TableAction {
    /// As the library has it.
    Library(Box<ast::AlterTableOperation>),
    /// ALTER COLUMN ... ADD, SET or DROP of an identity.
    Identity {
        /// The column.
        column: String,
        /// What becomes of it.
        change: IdentityChange,
    },
    /// ALTER COLUMN ... DROP EXPRESSION [IF EXISTS].
    DropExpression {
        /// The column.
        column: String,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// VALIDATE CONSTRAINT.
    Validate(String),
    /// ALTER CONSTRAINT: DEFERRABLE and INITIALLY DEFERRED, where said.
    Timing {
        /// The constraint.
        name: String,
        /// DEFERRABLE.
        deferrable: Option<bool>,
        /// INITIALLY DEFERRED.
        deferred: Option<bool>,
    },
    /// OWNER TO.
    Owner(String),
    /// CLUSTER ON: means nothing here, but names an index.
    ClusterOn(String),
    /// What PostgreSQL's storage is told and means nothing here: SET STATISTICS, SET STORAGE, SET (fillfactor = ...).
    Nothing,
}

/// What becomes of a column's identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentityChange {
    /// ADD GENERATED { ALWAYS | BY DEFAULT } AS IDENTITY.
    Add {
        /// ALWAYS.
        always: bool,
        /// The sequence's name, where one is given.
        name: Option<Name>,
        /// The sequence's numbers.
        options: SequenceOptions,
    },
    /// SET GENERATED, SET of the sequence's options, RESTART.
    Set {
        /// ALWAYS or BY DEFAULT, where said.
        always: Option<bool>,
        /// The sequence's numbers.
        options: SequenceOptions,
    },
    /// DROP IDENTITY [IF EXISTS].
    Drop {
        /// IF EXISTS.
        if_exists: bool,
    },
}

/// ALTER TABLE and ALTER INDEX, behind ALTER. `None` if it is another ALTER.
pub(super) fn read(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    if r.eat("index") {
        return index(r).map(Some);
    }
    if !r.eat("table") {
        return Ok(None);
    }
    let if_exists = r.eat_all("if exists");
    r.eat("only");
    let name = r.name()?;
    r.eat_symbol("*");
    let mut actions = Vec::new();
    loop {
        let end = action_end(r);
        actions.push(action(r, end)?);
        if r.at != end {
            return Err(r.error());
        }
        if !r.eat_symbol(",") {
            break;
        }
    }
    Ok(Some(Utility::AlterTable { name, if_exists, actions }))
}

/// Where the action that begins here ends: at a comma outside of parentheses, or with the statement.
fn action_end(r: &Reader<'_>) -> usize {
    let mut depth = 0i32;
    for (place, token) in r.tokens.iter().enumerate().skip(r.at) {
        match token.text(r.source) {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "," if depth == 0 => return place,
            _ => {}
        }
    }
    r.tokens.len()
}

fn action(r: &mut Reader<'_>, end: usize) -> Result<TableAction> {
    let start = r.at;
    if r.eat_all("validate constraint") {
        return Ok(TableAction::Validate(r.identifier()?));
    }
    if r.eat_all("alter constraint") {
        return timing(r, end);
    }
    if r.eat_all("owner to") {
        return Ok(TableAction::Owner(r.identifier()?));
    }
    if r.eat_all("cluster on") {
        return Ok(TableAction::ClusterOn(r.identifier()?));
    }
    if r.eat_all("set without") {
        if !r.eat("cluster") {
            r.expect("oids")?;
        }
        return Ok(TableAction::Nothing);
    }
    if (r.eat("set") || r.eat("reset")) && r.eat_symbol("(") {
        r.arguments()?;
        return Ok(TableAction::Nothing);
    }
    r.at = start;
    if r.eat_all("replica identity") {
        if r.eat("default") {
            return Ok(TableAction::Nothing);
        }
        return Err(Error::unsupported("ALTER TABLE ... REPLICA IDENTITY"));
    }
    if r.eat("alter") {
        let _ = r.eat("column");
        if let Ok(column) = r.identifier()
            && let Some(found) = column_action(r, column, end)?
        {
            return Ok(found);
        }
    }
    r.at = end;
    crate::parse::alteration(r.source, r.tokens, start..end).map(|action| TableAction::Library(Box::new(action)))
}

fn timing(r: &mut Reader<'_>, end: usize) -> Result<TableAction> {
    let name = r.identifier()?;
    let (mut deferrable, mut deferred) = (None, None);
    while r.at < end {
        if r.eat_all("not deferrable") {
            deferrable = Some(false);
        } else if r.eat("deferrable") {
            deferrable = Some(true);
        } else if r.eat_all("initially deferred") {
            deferred = Some(true);
        } else if r.eat_all("initially immediate") {
            deferred = Some(false);
        } else {
            return Err(r.error());
        }
    }
    Ok(TableAction::Timing { name, deferrable, deferred })
}

fn column_action(r: &mut Reader<'_>, column: String, end: usize) -> Result<Option<TableAction>> {
    if r.eat_all("add generated") {
        let always = r.eat("always");
        if !always {
            r.expect("by")?;
            r.expect("default")?;
        }
        r.expect("as")?;
        r.expect("identity")?;
        let (mut name, mut options) = (None, SequenceOptions::default());
        if r.eat_symbol("(") {
            if r.eat_all("sequence name") {
                name = Some(r.name()?);
            }
            options = sequence_options_until(r, |r| r.peek().is_none_or(|token| token.is(r.source, ")")))?;
            r.expect_symbol(")")?;
        }
        return Ok(Some(TableAction::Identity { column, change: IdentityChange::Add { always, name, options } }));
    }
    if r.eat_all("drop identity") {
        let change = IdentityChange::Drop { if_exists: r.eat_all("if exists") };
        return Ok(Some(TableAction::Identity { column, change }));
    }
    if r.eat_all("drop expression") {
        return Ok(Some(TableAction::DropExpression { column, if_exists: r.eat_all("if exists") }));
    }
    if r.eat_all("set statistics") {
        r.integer()?;
        return Ok(Some(TableAction::Nothing));
    }
    if r.eat_all("set storage") || r.eat_all("set compression") {
        r.identifier()?;
        return Ok(Some(TableAction::Nothing));
    }
    if (r.eat("set") || r.eat("reset")) && r.eat_symbol("(") {
        r.arguments()?;
        return Ok(Some(TableAction::Nothing));
    }
    identity_options(r, column, end)
}

/// SET GENERATED ..., SET of a sequence's option, RESTART: one or several of them. The reader may stand behind a SET.
fn identity_options(r: &mut Reader<'_>, column: String, end: usize) -> Result<Option<TableAction>> {
    let before = r.tokens.get(r.at.wrapping_sub(1)).is_some_and(|token| token.is_word(r.source, "set"));
    let first = r.at;
    let known = ["generated", "increment", "minvalue", "maxvalue", "no", "start", "restart", "cache", "cycle"];
    if !(before && known.iter().any(|word| r.word_is(word)) || r.word_is("restart")) {
        return Ok(None);
    }
    r.at = first - usize::from(before);
    let (mut always, mut options) = (None, SequenceOptions::default());
    while r.at < end {
        let _ = r.eat("set");
        if r.eat("generated") {
            always = Some(r.eat("always"));
            if always == Some(false) {
                r.expect("by")?;
                r.expect("default")?;
            }
            continue;
        }
        let more = sequence_options_until(r, |r| r.at >= end || r.word_is("set"))?;
        options = more.over(options);
    }
    Ok(Some(TableAction::Identity { column, change: IdentityChange::Set { always, options } }))
}

fn index(r: &mut Reader<'_>) -> Result<Utility> {
    let if_exists = r.eat_all("if exists");
    let name = r.name()?;
    if r.eat_all("rename to") {
        return Ok(Utility::RenameRelation { kind: "index", name, if_exists, to: r.identifier()? });
    }
    if (r.eat("set") || r.eat("reset")) && r.eat_symbol("(") {
        r.arguments()?;
        return Ok(Utility::RenameRelation { kind: "index", to: name.name.clone(), name, if_exists });
    }
    Err(Error::unsupported("ALTER INDEX other than RENAME"))
}

/// `{SEQUENCE | VIEW} name RENAME TO name`, behind ALTER. `None` if it is another ALTER.
pub(super) fn rename(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    let before = r.at;
    let kind = ["sequence", "view"].into_iter().find(|kind| r.eat(kind));
    if let Some(kind) = kind {
        let if_exists = r.eat_all("if exists");
        if let Ok(name) = r.name()
            && r.eat_all("rename to")
        {
            return Ok(Some(Utility::RenameRelation { kind, name, if_exists, to: r.identifier()? }));
        }
    }
    r.at = before;
    Ok(None)
}
