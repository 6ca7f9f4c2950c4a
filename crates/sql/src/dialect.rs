//! Which SQL does the parser read? sqlparser's PostgreSQL, but for one operator whose right side it takes too much of.

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use std::any::TypeId;

/// PostgreSQL's SQL.
#[derive(Debug)]
pub(crate) struct Postgres;

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

macro_rules! as_postgres {
    ($($name:ident($($argument:ident: $ty:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $ty),*) -> $result {
            POSTGRES.$name($($argument),*)
        })*
    };
}

impl Dialect for Postgres {
    /// The parser asks by type what else it should read.
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    /// `IS [NOT] DISTINCT FROM`: the right side ends before AND and OR (sqlparser 0.59 takes all that follows).
    fn parse_infix(&self, parser: &mut Parser<'_>, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        let negated = if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            false
        } else if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
            true
        } else {
            return None;
        };
        let left = Box::new(left.clone());
        Some(parser.parse_subexpr(self.prec_value(Precedence::Is)).map(Box::new).map(|right| match negated {
            false => Expr::IsDistinctFrom(left, right),
            true => Expr::IsNotDistinctFrom(left, right),
        }))
    }

    as_postgres! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_custom_operator_part(ch: char) -> bool;
        get_next_precedence(parser: &Parser<'_>) -> Option<Result<u8, ParserError>>;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(precedence: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_named_fn_args_with_expr_name() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
    }
}
