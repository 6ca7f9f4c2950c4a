"""What SQLAlchemy sees, over psycopg 3: tables made from classes, sessions, and the same tables read back out of the catalogs."""

import datetime
import decimal
import sys
import uuid

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

engine = sa.create_engine(f"postgresql+psycopg://postgres@127.0.0.1:{sys.argv[1]}/postgres")


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(50), unique=True)
    born: Mapped[datetime.date | None]
    mark: Mapped[uuid.UUID] = mapped_column(default=uuid.uuid4)
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "book"
    __table_args__ = (
        sa.UniqueConstraint("author_id", "title", name="book_of_author"),
        sa.CheckConstraint("price >= 0", name="book_price_not_negative"),
        sa.Index("book_by_price", "price", "title"),
    )
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"))
    title: Mapped[str] = mapped_column(sa.Text)
    price: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(10, 2), server_default="9.90")
    written: Mapped[datetime.datetime] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    tags: Mapped[list[str] | None] = mapped_column(sa.ARRAY(sa.Text))
    author: Mapped[Author] = relationship(back_populates="books")


def objects():
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(
            Author(name=f"author {i}", books=[Book(title=f"title {j}", tags=["a", f"{j}"]) for j in range(3)]) for i in range(20)
        )
        session.commit()
        found = session.scalars(sa.select(Author).options(selectinload(Author.books)).order_by(Author.id)).all()
        assert [len(author.books) for author in found] == [3] * 20
        assert found[0].books[1].tags == ["a", "1"] and found[0].books[0].price == decimal.Decimal("9.90")
        found[0].books.pop()
        found[1].name = "another"
        session.delete(found[2])
        session.commit()
        count = sa.select(Author.name, sa.func.count(Book.id)).join(Book, isouter=True).group_by(Author.name)
        rows = dict(session.execute(count.order_by(Author.name)).all())
        assert rows["author 0"] == 2 and rows["another"] == 3 and "author 2" not in rows and len(rows) == 19
        rank = sa.func.row_number().over(partition_by=Book.author_id, order_by=Book.title.desc())
        ranked = sa.select(Book.title, rank.label("n")).subquery()
        assert session.scalar(sa.select(sa.func.count()).where(ranked.c.n == 1)) == 19
        session.add(Author(name="another"))
        try:
            session.commit()
        except sa.exc.IntegrityError as error:
            assert error.orig.sqlstate == "23505"
            session.rollback()
        else:
            raise AssertionError("two authors with one name")
    with engine.begin() as connection:
        insert = sa.dialects.postgresql.insert(Author).values(name="another", born=datetime.date(1900, 1, 1), mark=uuid.uuid4())
        changed = insert.on_conflict_do_update(index_elements=["name"], set_={"born": insert.excluded.born})
        assert connection.execute(changed.returning(Author.__table__.c.born)).scalar() == datetime.date(1900, 1, 1)
    print("objects")


def reflection():
    with engine.begin() as connection:
        connection.execute(sa.text("create view priced as select title, price from book where price > 1"))
    inspector = sa.inspect(engine)
    assert sorted(inspector.get_table_names()) == ["author", "book"], inspector.get_table_names()
    assert inspector.get_view_names() == ["priced"]
    assert "price" in inspector.get_view_definition("priced")
    assert "public" in inspector.get_schema_names()
    assert inspector.default_schema_name == "public"
    columns = {column["name"]: column for column in inspector.get_columns("book")}
    assert columns["id"]["identity"]["start"] == 1 and isinstance(columns["id"]["type"], sa.BigInteger)
    assert repr(columns["price"]["type"]) == "NUMERIC(precision=10, scale=2)" and "9.90" in columns["price"]["default"]
    assert columns["written"]["type"].timezone and isinstance(columns["tags"]["type"], sa.ARRAY)
    assert not columns["title"]["nullable"] and columns["tags"]["nullable"]
    assert inspector.get_pk_constraint("book")["constrained_columns"] == ["id"]
    (key,) = inspector.get_foreign_keys("book")
    assert (key["constrained_columns"], key["referred_table"], key["options"]) == (["author_id"], "author", {"ondelete": "CASCADE"})
    assert [unique["name"] for unique in inspector.get_unique_constraints("book")] == ["book_of_author"]
    assert [check["name"] for check in inspector.get_check_constraints("book")] == ["book_price_not_negative"]
    indexes = {index["name"]: index["column_names"] for index in inspector.get_indexes("book")}
    assert indexes["book_by_price"] == ["price", "title"], indexes
    reflected = sa.MetaData()
    reflected.reflect(engine, views=True)
    assert sorted(reflected.tables) == ["author", "book", "priced"]
    # What was read back makes the same tables once more.
    with engine.begin() as connection:
        connection.execute(sa.text("drop view priced"))
    Base.metadata.drop_all(engine)
    reflected.remove(reflected.tables["priced"])
    reflected.create_all(engine)
    assert {c["name"]: repr(c["type"]) for c in sa.inspect(engine).get_columns("book")} == {
        name: repr(column["type"]) for name, column in columns.items()
    }
    reflected.drop_all(engine)
    print("reflection")


objects()
reflection()
