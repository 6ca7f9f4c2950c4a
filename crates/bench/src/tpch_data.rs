//! Where do TPC-H's rows and statements come from for a script? Written to standard output or a folder.

use clap::{Parser, Subcommand};
use homenode_bench::tpch;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// TPC-H's rows and statements.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Size: 1 is about a gigabyte of rows.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The rows of one table as CSV, to standard output.
    Rows {
        /// The table's name.
        table: String,
    },
    /// Files `tables.sql`, `indexes.sql`, and for each query `NN.sql`, one statement a file part ended by a semicolon.
    Statements {
        /// Where they go.
        folder: PathBuf,
    },
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    match arguments.what {
        What::Rows { table } => {
            let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
            tpch::write_rows(&table, arguments.scale, &mut out)?;
            out.flush()
        }
        What::Statements { folder } => {
            let write =
                |name: &str, statements: &[String]| std::fs::write(folder.join(name), statements.join(";\n") + ";\n");
            write("tables.sql", &tpch::definitions())?;
            write("indexes.sql", &tpch::indexes())?;
            (1..=tpch::QUERIES)
                .try_for_each(|number| write(&format!("{number:02}.sql"), &tpch::query(number, arguments.scale)))
        }
    }
}
