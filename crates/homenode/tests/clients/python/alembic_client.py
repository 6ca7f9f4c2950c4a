"""What a migration tool sees: Alembic goes up and down revisions, and finds out by itself what differs between classes and tables."""

import pathlib
import sys
import tempfile

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

URL = f"postgresql+psycopg://postgres@127.0.0.1:{sys.argv[1]}/postgres"
ENVIRONMENT = f"""
import sqlalchemy as sa
from alembic import context

with sa.create_engine("{URL}").connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
REVISIONS = {
    "one": """
    op.create_table("account", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(50), nullable=False))
    op.create_index("account_by_name", "account", ["name"], unique=True)
    op.execute("insert into account values (1, 'first')")
--
    op.drop_table("account")
""",
    "two": """
    op.add_column("account", sa.Column("balance", sa.Numeric(12, 2), nullable=False, server_default="10"))
    op.add_column("account", sa.Column("noted", sa.DateTime(timezone=True), server_default=sa.func.now()))
    op.create_check_constraint("balance_not_negative", "account", "balance >= 0")
    op.alter_column("account", "name", new_column_name="title")
--
    op.alter_column("account", "title", new_column_name="name")
    op.drop_constraint("balance_not_negative", "account")
    op.drop_column("account", "noted")
    op.drop_column("account", "balance")
""",
    "three": """
    op.create_table("entry", sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
                    sa.Column("account", sa.Integer, sa.ForeignKey("account.id", name="entry_account"), nullable=False, comment="whose"))
    op.alter_column("account", "title", type_=sa.Text(), existing_type=sa.String(50))
    op.alter_column("account", "noted", nullable=False)
    op.bulk_insert(sa.table("entry", sa.column("account", sa.Integer)), [{"account": 1}] * 3)
--
    op.drop_table("entry")
    op.alter_column("account", "noted", nullable=True)
    op.alter_column("account", "title", type_=sa.String(50), existing_type=sa.Text())
""",
}


def write_revisions(folder):
    (folder / "versions").mkdir()
    (folder / "env.py").write_text(ENVIRONMENT)
    before = None
    for name, body in REVISIONS.items():
        up, down = body.split("--\n")
        text = f'from alembic import op\nimport sqlalchemy as sa\nrevision = "{name}"\ndown_revision = {before!r}\n'
        (folder / "versions" / f"{name}.py").write_text(f"{text}\ndef upgrade():{up}\ndef downgrade():\n{down}")
        before = name


def model():
    metadata = sa.MetaData()
    account = sa.Table(
        "account", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("title", sa.Text, nullable=False),
        sa.Column("balance", sa.Numeric(12, 2), nullable=False, server_default="10"),
        sa.Column("noted", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("balance >= 0", name="balance_not_negative"),
    )
    sa.Index("account_by_name", account.c.title, unique=True)
    sa.Table(
        "entry", metadata, sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("account", sa.Integer, sa.ForeignKey("account.id", name="entry_account"), nullable=False, comment="whose"),
    )
    return metadata


engine = sa.create_engine(URL)


def scalar(statement):
    with engine.connect() as connection:
        return connection.execute(sa.text(statement)).scalar()


def differences(metadata):
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        ignored = lambda change: change[0] == "remove_table" and change[1].name == "alembic_version"
        return [change for change in compare_metadata(context, metadata) if not ignored(change)]


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    write_revisions(folder)
    config = Config()
    config.set_main_option("script_location", str(folder))
    command.upgrade(config, "head")
    assert scalar("select version_num from alembic_version") == "three"
    assert scalar("select title || balance || (noted is not null) from account") == "first10.00true"
    assert scalar("select count(*) from entry join account on account = account.id") == 3
    assert differences(model()) == [], differences(model())
    more = model()
    sa.Table("more", more, sa.Column("id", sa.Integer, primary_key=True))
    more.tables["account"].append_column(sa.Column("mark", sa.Uuid))
    assert sorted(change[0] for change in differences(more)) == ["add_column", "add_table"], differences(more)
    print("up")
    command.downgrade(config, "one")
    assert scalar("select name from account") == "first"
    command.upgrade(config, "three")
    command.downgrade(config, "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]
    print("down")
