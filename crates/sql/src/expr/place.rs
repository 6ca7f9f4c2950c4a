//! Where in the statement is the expression that an error is about? PostgreSQL's clients show it with a caret.

use crate::bind::at;
use homenode_types::{Error, SqlState};
use sqlparser::ast::{self, Expr, Spanned};
use sqlparser::tokenizer::Span;

/// The error with the place of `tree` where PostgreSQL gives one: names and calls, and literals that cannot be read.
#[cold]
pub(super) fn placed(error: Error, tree: &Expr) -> Error {
    if error.position.is_some() {
        return error;
    }
    match found(&error, tree) {
        Some(span) => at(error, span),
        None => error,
    }
}

fn found(error: &Error, tree: &Expr) -> Option<Span> {
    match error.code.class() {
        "42" => named(error.code, tree),
        // Arithmetic on constants fails with the same codes but has no place, so the message has to quote the literal.
        "22" => operands(tree).into_iter().find_map(|operand| literal(error, operand)),
        _ => None,
    }
}

fn named(code: SqlState, tree: &Expr) -> Option<Span> {
    let columns = [
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_TABLE,
        SqlState::AMBIGUOUS_COLUMN,
        SqlState::GROUPING_ERROR,
        SqlState::UNDEFINED_FUNCTION,
    ];
    match tree {
        Expr::Identifier(ident) if columns.contains(&code) => Some(ident.span),
        Expr::CompoundIdentifier(idents) if columns.contains(&code) => idents.first().map(|ident| ident.span),
        Expr::Function(function) => {
            let calls = [SqlState::UNDEFINED_FUNCTION, SqlState::WRONG_OBJECT_TYPE, SqlState::GROUPING_ERROR];
            let name = function.name.0.first().and_then(|part| part.as_ident());
            name.filter(|_| calls.contains(&code)).map(|name| name.span)
        }
        Expr::Cast { data_type: ast::DataType::Custom(name, _), .. } if code == SqlState::UNDEFINED_OBJECT => {
            Some(name.span())
        }
        _ => None,
    }
}

/// The expressions whose literals an expression reads.
fn operands(tree: &Expr) -> Vec<&Expr> {
    match tree {
        Expr::Value(_) => vec![tree],
        Expr::Cast { expr, .. } => vec![expr],
        Expr::BinaryOp { left, right, .. } => vec![left, right],
        Expr::InList { expr, list, .. } => std::iter::once(&**expr).chain(list).collect(),
        Expr::Between { expr, low, high, .. } => vec![expr, low, high],
        Expr::Array(array) => array.elem.iter().collect(),
        Expr::Function(function) => match &function.args {
            ast::FunctionArguments::List(list) => list.args.iter().filter_map(argument).collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn argument(argument: &ast::FunctionArg) -> Option<&Expr> {
    match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// The place of `tree` if it is the text that the error's message quotes.
fn literal(error: &Error, tree: &Expr) -> Option<Span> {
    let Expr::Value(value) = tree else { return None };
    let ast::Value::SingleQuotedString(text) = &value.value else { return None };
    error.message.contains(&format!("\"{text}\"")).then_some(value.span)
}

/// The error with the place of a literal that could not be read as the type it is stored in.
#[cold]
pub(crate) fn stored(error: Error, tree: &Expr) -> Error {
    if error.position.is_none() && error.code == SqlState::DATATYPE_MISMATCH {
        return at(error, tree.span());
    }
    placed(error, tree)
}
