//! How do rows come and go in bulk? COPY FROM STDIN and COPY TO STDOUT, as text, CSV and in binary (PostgreSQL manual, COPY, File Formats).

use crate::bind::{Binder, copy_column, visible_columns};
use crate::checks::Checks;
use crate::connection::Output;
use crate::context::Context;
use crate::copy_binary::{self, Tuple};
use crate::ddl;
use crate::exec::{Registers, Running};
use crate::expr::{Expr, Params};
use crate::foreign::{Pending, Watch};
use crate::plan::QueryPlan;
use crate::utility::{CopyOptions, CopySubject};
use crate::wire;
use homenode_engine::{Copy, Table};
use homenode_types::{Error, Result, SqlState, Value};
use std::sync::Arc;

/// A COPY FROM STDIN that takes data.
pub(crate) struct CopyIn {
    table: Arc<Table>,
    copy: Copy,
    columns: Vec<usize>,
    defaults: Vec<Option<Expr>>,
    checks: Checks,
    foreign: Option<Box<Watch>>,
    pending: Pending,
    options: CopyOptions,
    /// Bytes after the last whole line.
    rest: Vec<u8>,
    line: u64,
    header_left: bool,
    /// `\.` was seen.
    ended: bool,
    values: Vec<Value>,
    field: Vec<u8>,
}

/// A CSV line that spans messages may not grow beyond this many bytes.
const MAX_LINE_BYTES: usize = 64 << 20;

impl CopyIn {
    /// Begins COPY FROM STDIN.
    pub fn begin(context: &mut Context, table: &Arc<Table>, names: &[String], options: &CopyOptions) -> Result<CopyIn> {
        let columns = columns_of(table, names)?;
        let defaults = ddl::copy_defaults(table, &columns)?;
        let copy = context.session.copy_begin(table)?;
        Ok(CopyIn {
            values: vec![Value::Null; table.columns.len()],
            checks: Checks::of(table)?,
            foreign: Watch::inserts(table),
            pending: Pending::default(),
            table: table.clone(),
            copy,
            columns,
            defaults,
            header_left: options.header || options.binary,
            options: options.clone(),
            rest: Vec::new(),
            line: 0,
            ended: false,
            field: Vec::new(),
        })
    }

    /// Number of columns in the data.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Takes a CopyData message: any number of lines, not necessarily whole ones.
    pub fn data(&mut self, context: &mut Context, data: &[u8]) -> Result<()> {
        context.check_interrupt()?;
        let mut joined = std::mem::take(&mut self.rest);
        if joined.is_empty() {
            let used = self.lines(context, data)?;
            joined.extend_from_slice(&data[used..]);
        } else {
            joined.extend_from_slice(data);
            let used = self.lines(context, &joined)?;
            joined.drain(..used);
        }
        if joined.len() > MAX_LINE_BYTES {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a line of COPY data is too long"));
        }
        self.rest = joined;
        Ok(())
    }

    /// Takes all whole tuples of `data`; gives the number of bytes used.
    fn tuples(&mut self, context: &mut Context, data: &[u8]) -> Result<usize> {
        let mut start = 0;
        if self.header_left {
            let Some(length) = copy_binary::header_length(data)? else { return Ok(0) };
            self.header_left = false;
            start = length;
        }
        while !self.ended {
            let place = |error: Error, line| error.with_context(|| format!("COPY {}, line {line}", self.table.name));
            let tuple = copy_binary::first_tuple(&data[start..], self.columns.len());
            match tuple.map_err(|error| place(error, self.line + 1))? {
                Tuple::Partial => break,
                Tuple::End => {
                    self.ended = true;
                    start += 2;
                }
                Tuple::Whole(length) => {
                    self.one_tuple(context, &data[start..start + length])?;
                    start += length;
                }
            }
        }
        if self.ended && start < data.len() {
            let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, "received copy data after EOF marker");
            return Err(error.with_context(|| format!("COPY {}, line {}", self.table.name, self.line + 1)));
        }
        Ok(start)
    }

    fn one_tuple(&mut self, context: &mut Context, tuple: &[u8]) -> Result<()> {
        self.line += 1;
        if self.line.is_multiple_of(1024) {
            context.check_interrupt()?;
        }
        let mut values = std::mem::take(&mut self.values);
        let read = copy_binary::read_tuple(tuple, &self.table, &self.columns, &mut values);
        let stored = read.map_err(|(column, error)| {
            let name = &self.table.columns[column].name;
            error.with_context(|| format!("COPY {}, line {}, column {name}", self.table.name, self.line))
        });
        let stored = stored.and_then(|()| self.store(context, &mut values));
        self.values = values;
        stored.map_err(|error| error.with_context(|| format!("COPY {}, line {}", self.table.name, self.line)))
    }

    /// Takes all whole lines of `data`; gives the number of bytes used.
    fn lines(&mut self, context: &mut Context, data: &[u8]) -> Result<usize> {
        if self.options.binary {
            return self.tuples(context, data);
        }
        let mut start = 0;
        while !self.ended {
            let Some(length) = self.line_length(&data[start..]) else { break };
            self.one_line(context, &data[start..start + length])?;
            start += length + 1;
        }
        Ok(if self.ended { data.len() } else { start })
    }

    /// The bytes before the newline that ends the next line.
    fn line_length(&self, data: &[u8]) -> Option<usize> {
        if !self.options.csv {
            let mut from = 0;
            loop {
                let at = from + data[from..].iter().position(|byte| *byte == b'\n')?;
                // A newline after an odd number of backslashes is data.
                let slashes = data[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                if slashes % 2 == 0 || data[..at].ends_with(b"\\.") {
                    return Some(at);
                }
                from = at + 1;
            }
        }
        let mut quoted = false;
        let mut at = 0;
        while at < data.len() {
            let byte = data[at];
            if quoted && byte == self.options.escape && self.options.escape != self.options.quote {
                at += 1;
            } else if byte == self.options.quote {
                quoted = !quoted;
            } else if byte == b'\n' && !quoted {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    fn one_line(&mut self, context: &mut Context, line: &[u8]) -> Result<()> {
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        if std::mem::take(&mut self.header_left) {
            return if self.options.header_match { self.check_header(line) } else { Ok(()) };
        }
        if self.line.is_multiple_of(1024) {
            context.check_interrupt()?;
        }
        let mut values = std::mem::take(&mut self.values);
        let parsed =
            if self.options.csv { self.csv_line(line, &mut values) } else { self.text_line(line, &mut values) };
        let stored = parsed.and_then(|()| self.store(context, &mut values));
        self.values = values;
        stored.map_err(|error| {
            error.with_context(|| format!("COPY {}, line {}: \"{}\"", self.table.name, self.line, shown(line)))
        })
    }

    /// Stores a row whose given columns are read.
    fn store(&mut self, context: &mut Context, values: &mut [Value]) -> Result<()> {
        for (value, default) in values.iter_mut().zip(&self.defaults) {
            if let Some(default) = default {
                *value = default.eval(&(), &[], &mut context.env())?;
            }
        }
        self.checks.fill(values, &mut context.env())?;
        self.checks.enforce(&self.table, &Registers(values), &mut context.env())?;
        self.copy.push(&mut context.session, values)?;
        match &self.foreign {
            Some(watch) => self.pending.inserted(watch, &self.table, &Registers(values), context),
            None => Ok(()),
        }
    }

    /// HEADER MATCH: the first line must hold the columns' names.
    fn check_header(&self, line: &[u8]) -> Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for field in line.split(|byte| *byte == self.options.delimiter) {
            let mut name = Vec::new();
            let quote = [self.options.quote];
            match field.strip_prefix(&quote).and_then(|field| field.strip_suffix(&quote)) {
                Some(quoted) if self.options.csv => name.extend_from_slice(quoted),
                _ if self.options.csv => name.extend_from_slice(field),
                _ => unescape(field, &mut name),
            }
            names.push(name);
        }
        let bad = |message| Error::new(SqlState::BAD_COPY_FILE_FORMAT, message);
        if names.len() != self.columns.len() {
            let message =
                format!("wrong number of fields in header line: got {}, expected {}", names.len(), self.columns.len());
            return Err(bad(message));
        }
        for (number, (found, column)) in names.iter().zip(&self.columns).enumerate() {
            let wanted = &self.table.columns[*column].name;
            if found != wanted.as_bytes() {
                let found = String::from_utf8_lossy(found);
                let message = format!(
                    "column name mismatch in header line field {}: got \"{found}\", expected \"{wanted}\"",
                    number + 1
                );
                return Err(bad(message));
            }
        }
        Ok(())
    }

    fn text_line(&mut self, line: &[u8], values: &mut [Value]) -> Result<()> {
        let mut number = 0;
        let mut start = 0;
        loop {
            let mut end = start;
            let mut escaped = false;
            while end < line.len() && line[end] != self.options.delimiter {
                if line[end] == b'\\' {
                    escaped = true;
                    end += 1;
                }
                end += 1;
            }
            let raw = &line[start..end.min(line.len())];
            if raw == self.options.null.as_bytes() {
                self.set_null(number, values)?;
            } else if escaped {
                let mut field = std::mem::take(&mut self.field);
                unescape(raw, &mut field);
                let result = self.set(number, &field, values);
                self.field = field;
                result?;
            } else {
                self.set(number, raw, values)?;
            }
            number += 1;
            if end >= line.len() {
                break;
            }
            start = end + 1;
        }
        self.all_given(number)
    }

    fn csv_line(&mut self, line: &[u8], values: &mut [Value]) -> Result<()> {
        let (quote, escape, delimiter) = (self.options.quote, self.options.escape, self.options.delimiter);
        let mut number = 0;
        let mut at = 0;
        loop {
            let mut field = std::mem::take(&mut self.field);
            field.clear();
            let (mut was_quoted, mut quoted) = (false, false);
            while at < line.len() {
                let byte = line[at];
                if quoted {
                    if byte == escape && line.get(at + 1).is_some_and(|next| *next == quote || *next == escape) {
                        field.push(line[at + 1]);
                        at += 1;
                    } else if byte == quote {
                        quoted = false;
                    } else {
                        field.push(byte);
                    }
                } else if byte == quote {
                    (quoted, was_quoted) = (true, true);
                } else if byte == delimiter {
                    break;
                } else {
                    field.push(byte);
                }
                at += 1;
            }
            if quoted {
                return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, "unterminated CSV quoted field"));
            }
            let name = self.columns.get(number).map_or("", |column| &self.table.columns[*column].name);
            let may_be_null = match was_quoted {
                true => self.options.force_null.include(name),
                false => !self.options.force_not_null.include(name),
            };
            let result = if may_be_null && field == self.options.null.as_bytes() {
                self.set_null(number, values)
            } else {
                self.set(number, &field, values)
            };
            self.field = field;
            result?;
            number += 1;
            if at >= line.len() {
                break;
            }
            at += 1;
        }
        self.all_given(number)
    }

    fn column(&self, number: usize) -> Result<usize> {
        self.columns
            .get(number)
            .copied()
            .ok_or_else(|| Error::new(SqlState::BAD_COPY_FILE_FORMAT, "extra data after last expected column"))
    }

    fn set_null(&self, number: usize, values: &mut [Value]) -> Result<()> {
        values[self.column(number)?] = Value::Null;
        Ok(())
    }

    fn set(&self, number: usize, bytes: &[u8], values: &mut [Value]) -> Result<()> {
        let column = self.column(number)?;
        let parsed = Value::parse_bytes(bytes, self.table.columns[column].ty);
        values[column] = parsed.map_err(|error| {
            error.with_context(|| {
                let name = &self.table.columns[column].name;
                format!("COPY {}, line {}, column {name}: \"{}\"", self.table.name, self.line, shown(bytes))
            })
        })?;
        Ok(())
    }

    fn all_given(&self, number: usize) -> Result<()> {
        match self.columns.get(number) {
            None => Ok(()),
            Some(column) => {
                let message = format!("missing data for column \"{}\"", self.table.columns[*column].name);
                Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message))
            }
        }
    }

    /// CopyDone: the rest, and the number of rows.
    pub fn finish(mut self, context: &mut Context) -> Result<u64> {
        let rest = std::mem::take(&mut self.rest);
        // The trailer may be missing, as for PostgreSQL: pgx sends none.
        if self.options.binary && (!rest.is_empty() || self.header_left) {
            let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, "unexpected EOF in COPY data");
            return Err(error.with_context(|| format!("COPY {}, line {}", self.table.name, self.line + 1)));
        }
        if !rest.is_empty() && !self.ended {
            self.one_line(context, &rest)?;
        }
        let rows = self.copy.finish(&mut context.session)?;
        self.pending.settle(context)?;
        Ok(rows)
    }
}

/// The columns that are copied where none are named.
fn plain_columns(table: &Table) -> Vec<usize> {
    let mut columns = visible_columns(table);
    columns.retain(|&column| table.columns[column].generated.is_none());
    columns
}

fn columns_of(table: &Table, names: &[String]) -> Result<Vec<usize>> {
    if names.is_empty() {
        return Ok(plain_columns(table));
    }
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let column = copy_column(table, name)?;
        if table.columns[column].generated.is_some() {
            let message = format!("column \"{name}\" is a generated column");
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message)
                .with_detail("Generated columns cannot be used in COPY."));
        }
        if columns.contains(&column) {
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, format!("column \"{name}\" specified more than once")));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// Data as an error's context shows it: at most 100 bytes (MAX_COPY_DATA_DISPLAY in copyfromparse.c).
fn shown(data: &[u8]) -> String {
    const MAX_BYTES: usize = 100;
    if data.len() <= MAX_BYTES {
        return String::from_utf8_lossy(data).into_owned();
    }
    let end = (0..=MAX_BYTES).rev().find(|end| data[*end] & 0xC0 != 0x80).unwrap_or(MAX_BYTES);
    format!("{}...", String::from_utf8_lossy(&data[..end]))
}

fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut at = 0;
    while at < raw.len() {
        let byte = raw[at];
        at += 1;
        if byte != b'\\' || at == raw.len() {
            out.push(byte);
            continue;
        }
        let escape = raw[at];
        at += 1;
        out.push(match escape {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'x' if raw.get(at).is_some_and(u8::is_ascii_hexdigit) => number(raw, &mut at, 16, 2),
            b'0'..=b'7' => {
                at -= 1;
                number(raw, &mut at, 8, 3)
            }
            other => other,
        });
    }
}

fn number(raw: &[u8], at: &mut usize, radix: u32, digits: usize) -> u8 {
    let mut value = 0_u32;
    for _ in 0..digits {
        let Some(digit) = raw.get(*at).and_then(|byte| char::from(*byte).to_digit(radix)) else { break };
        value = value * radix + digit;
        *at += 1;
    }
    value as u8
}

/// COPY TO STDOUT: a table or a query; gives the number of rows.
pub(crate) fn copy_out(
    context: &mut Context,
    subject: &CopySubject,
    options: &CopyOptions,
    out: &mut dyn Output,
) -> Result<u64> {
    let plan = match subject {
        CopySubject::Query(text) => query(context, text)?,
        CopySubject::Table(name, columns) => {
            let table = ddl::table_named(context, name)?;
            let places = columns_of(&table, columns)?;
            let names = places.iter().map(|&column| homenode_engine::quote_name(&table.columns[column].name));
            let list = names.collect::<Vec<_>>().join(", ");
            let (schema, table) =
                (homenode_engine::quote_name(&table.schema), homenode_engine::quote_name(&table.name));
            query(context, &format!("SELECT {list} FROM {schema}.{table}"))?
        }
    };
    wire::copy_response(out.buffer(), b'H', plan.fields.len(), options.binary);
    let force_quote: Vec<bool> = plan.fields.iter().map(|field| options.force_quote.include(&field.name)).collect();
    if options.header {
        let names: Vec<Option<Vec<u8>>> =
            plan.fields.iter().map(|field| Some(field.name.clone().into_bytes())).collect();
        write_line(&names, options, &[], out.buffer());
    }
    // Clients expect a message for each row; the header goes before the first of them, or before the trailer.
    let mut header_left = options.binary;
    let mut binary_message = |buffer: &mut Vec<u8>| {
        let mark = wire::start(buffer, b'd');
        if std::mem::take(&mut header_left) {
            copy_binary::write_header(buffer);
        }
        mark
    };
    let mut running = Running::new(plan.clone());
    running.open(&mut context.env(), &[])?;
    let mut rows = 0;
    let mut line: Vec<Option<Vec<u8>>> = Vec::with_capacity(plan.fields.len());
    loop {
        let mut env = context.env();
        if !running.next(&mut env, &[])? {
            break;
        }
        if options.binary {
            let values = running.output(&mut env, &[])?;
            let buffer = out.buffer();
            let mark = binary_message(buffer);
            buffer.extend_from_slice(&(values.len() as i16).to_be_bytes());
            for (value, field) in values.iter().zip(&plan.fields) {
                wire::column(buffer, value.as_ref(), field.ty.ty, wire::Format::Binary);
            }
            wire::finish(buffer, mark);
            rows += 1;
            out.flush_if_large()?;
            continue;
        }
        line.clear();
        for (value, field) in running.output(&mut env, &[])?.iter().zip(&plan.fields) {
            line.push((!value.is_null()).then(|| {
                let mut text = Vec::new();
                value.as_ref().write_text(field.ty.ty, &mut text);
                text
            }));
        }
        write_line(&line, options, &force_quote, out.buffer());
        rows += 1;
        out.flush_if_large()?;
    }
    if options.binary {
        let mark = binary_message(out.buffer());
        copy_binary::write_trailer(out.buffer());
        wire::finish(out.buffer(), mark);
    }
    wire::empty(out.buffer(), b'c');
    Ok(rows)
}

fn query(context: &mut Context, text: &str) -> Result<Arc<QueryPlan>> {
    let mut tokens = Vec::new();
    crate::lexer::lex(text, &mut tokens)?;
    let crate::parse::Statement::Query(tree) = crate::parse::parse(text, &tokens)? else {
        return Err(Error::unsupported("COPY of a statement other than a query"));
    };
    let definitions = context.definitions();
    let binder = Binder::new(&definitions, context.search_path());
    let (plan, _) = binder.query(&tree, None, &mut Params::new(Vec::new()), false)?;
    context.check_access(&binder.needs.take())?;
    Ok(plan)
}

fn write_line(fields: &[Option<Vec<u8>>], options: &CopyOptions, force_quote: &[bool], out: &mut Vec<u8>) {
    let mark = wire::start(out, b'd');
    for (number, field) in fields.iter().enumerate() {
        if number > 0 {
            out.push(options.delimiter);
        }
        match field {
            None => out.extend_from_slice(options.null.as_bytes()),
            Some(text) if options.csv => {
                let forced = force_quote.get(number) == Some(&true);
                write_csv(text, options, forced || (fields.len() == 1 && text == b"\\."), out);
            }
            Some(text) => escape(text, options.delimiter, out),
        }
    }
    out.push(b'\n');
    wire::finish(out, mark);
}

fn write_csv(text: &[u8], options: &CopyOptions, quoted: bool, out: &mut Vec<u8>) {
    let special = |byte: &u8| *byte == options.delimiter || *byte == options.quote || *byte == b'\n' || *byte == b'\r';
    if !quoted && !text.iter().any(special) && text != options.null.as_bytes() {
        out.extend_from_slice(text);
        return;
    }
    out.push(options.quote);
    for &byte in text {
        if byte == options.quote || byte == options.escape {
            out.push(options.escape);
        }
        out.push(byte);
    }
    out.push(options.quote);
}

fn escape(text: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    for &byte in text {
        let escaped = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_come_back() {
        let mut escaped = Vec::new();
        escape(b"a\tb\\c\nd", b'\t', &mut escaped);
        assert_eq!(escaped, b"a\\tb\\\\c\\nd");
        let mut back = Vec::new();
        unescape(&escaped, &mut back);
        assert_eq!(back, b"a\tb\\c\nd");
        unescape(b"\\101\\x42\\q", &mut back);
        assert_eq!(back, b"ABq");
    }
}
