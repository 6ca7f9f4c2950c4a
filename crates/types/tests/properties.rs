//! What must hold for every value of every type: order, round trips, and no panic on any bytes.

use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use homenode_types::{
    ColumnType, Decimal, Interval, RowLayout, TYPES, Type, Value, ValuePointer, ValueRef, compare, compare_bpchar,
    hash, is_split, key, moved_row, moved_to,
};
use proptest::prelude::*;

/// Types that tables can have.
const STORED: &[Type] = &[
    Type::Bool,
    Type::Int2,
    Type::Int4,
    Type::Int8,
    Type::Float4,
    Type::Float8,
    Type::Numeric,
    Type::Text,
    Type::Varchar,
    Type::Bpchar,
    Type::Char,
    Type::Name,
    Type::Bytea,
    Type::Date,
    Type::Time,
    Type::Timestamp,
    Type::Timestamptz,
    Type::Interval,
    Type::Uuid,
    Type::Json,
    Type::Jsonb,
    Type::Oid,
];

/// Few distinct characters, so that prefixes and blanks meet often.
fn text() -> BoxedStrategy<String> {
    prop_oneof![2 => "[ab \u{1}é]{0,6}", 1 => "\\PC{0,20}"].boxed()
}

fn near_edges() -> BoxedStrategy<i64> {
    prop_oneof![any::<i64>(), -3i64..4, any::<i32>().prop_map(i64::from), Just(i64::MIN), Just(i64::MAX)].boxed()
}

fn decimal() -> BoxedStrategy<Decimal> {
    let small = (-1000i64..1000, 0u32..4).prop_map(|(m, s)| Decimal::new(m, s));
    let any =
        (any::<i128>(), 0u32..=28).prop_map(|(m, s)| Decimal::try_from_i128_with_scale(m >> 32, s).unwrap_or_default());
    prop_oneof![small, any].boxed()
}

fn float() -> BoxedStrategy<f64> {
    prop_oneof![any::<f64>(), (-8i32..8).prop_map(f64::from), Just(-0.0), Just(f64::NAN)].boxed()
}

/// 4713 BC to 294276 AD.
fn timestamp() -> BoxedStrategy<i64> {
    prop_oneof![-211_813_488_000_000_000i64..9_223_371_331_200_000_000, Just(i64::MIN), Just(i64::MAX)].boxed()
}

fn interval() -> BoxedStrategy<Interval> {
    let small = (-24i32..24, -40i32..40, -90_000_000_000i64..90_000_000_000);
    let any = (any::<i32>(), any::<i32>(), any::<i64>());
    prop_oneof![small.boxed(), any.boxed()].prop_map(|(months, days, us)| Interval { months, days, us }).boxed()
}

fn json() -> BoxedStrategy<String> {
    let leaf = prop_oneof!["null", "true", "-?[1-9][0-9]{0,4}(\\.[0-9]{1,3})?", "\"[a-c]{0,2}\""];
    leaf.prop_recursive(3, 10, 3, |inner| {
        let list = |open, close| move |items: Vec<String>| format!("{open}{}{close}", items.join(", "));
        let pair = ("[ab]{0,2}", inner.clone()).prop_map(|(key, value)| format!("\"{key}\" :{value}"));
        prop_oneof![
            proptest::collection::vec(inner, 0..3).prop_map(list('[', ']')),
            proptest::collection::vec(pair, 0..3).prop_map(list('{', '}')),
        ]
    })
    .boxed()
}

fn value(ty: Type) -> BoxedStrategy<Value> {
    match ty {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Int2 => near_edges().prop_map(|i| Value::Int2(i as i16)).boxed(),
        Type::Int4 => near_edges().prop_map(|i| Value::Int4(i as i32)).boxed(),
        Type::Int8 => near_edges().prop_map(Value::Int8).boxed(),
        Type::Float4 => float().prop_map(|f| Value::Float4(f as f32)).boxed(),
        Type::Float8 => float().prop_map(Value::Float8).boxed(),
        Type::Numeric => decimal().prop_map(Value::Numeric).boxed(),
        Type::Char => "[a-z\u{1}é]{0,1}".prop_map(Value::Text).boxed(),
        Type::Bytea => proptest::collection::vec(0u8..4, 0..6).prop_map(Value::Bytea).boxed(),
        Type::Date => {
            prop_oneof![-2_451_545i32..2_145_031_949, Just(i32::MIN), Just(i32::MAX)].prop_map(Value::Date).boxed()
        }
        Type::Time => (0i64..=86_400_000_000).prop_map(Value::Time).boxed(),
        Type::Timestamp => timestamp().prop_map(Value::Timestamp).boxed(),
        Type::Timestamptz => timestamp().prop_map(Value::Timestamptz).boxed(),
        Type::Interval => interval().prop_map(Value::Interval).boxed(),
        Type::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        Type::Json => json().prop_map(Value::Text).boxed(),
        Type::Jsonb => json().prop_map(|text| Value::Jsonb(homenode_types::json::canonical(&text).unwrap())).boxed(),
        Type::Oid => any::<u32>().prop_map(Value::Oid).boxed(),
        _ => text().prop_map(Value::Text).boxed(),
    }
}

fn value_or_null(ty: Type) -> BoxedStrategy<Value> {
    prop_oneof![6 => value(ty), 1 => Just(Value::Null)].boxed()
}

fn typed_pair() -> BoxedStrategy<(Type, Value, Value)> {
    proptest::sample::select(STORED).prop_flat_map(|ty| (Just(ty), value_or_null(ty), value_or_null(ty))).boxed()
}

fn typed_row() -> BoxedStrategy<Vec<(Type, Value)>> {
    let column = proptest::sample::select(STORED).prop_flat_map(|ty| (Just(ty), value_or_null(ty)));
    proptest::collection::vec(column, 0..20).boxed()
}

fn order(ty: Type, a: &Value, b: &Value) -> Ordering {
    match ty {
        Type::Bpchar => compare_bpchar(a.as_ref(), b.as_ref()),
        _ => compare(a.as_ref(), b.as_ref()),
    }
}

fn key_of(ty: Type, v: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_column(v.as_ref(), ty, &mut out);
    out
}

fn hash_of(v: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash(v.as_ref(), &mut hasher);
    hasher.finish()
}

/// Equal, where NaN equals itself.
fn same(a: &Value, b: &Value) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b) && compare(a.as_ref(), b.as_ref()) == Ordering::Equal
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn key_order_is_value_order((ty, a, b) in typed_pair()) {
        prop_assert_eq!(key_of(ty, &a).cmp(&key_of(ty, &b)), order(ty, &a, &b));
    }

    #[test]
    fn keys_of_several_columns_keep_the_order(
        (s, t) in (text(), text()), (i, j) in (any::<i8>(), any::<i8>())
    ) {
        let key = |s: &str, i: i8| {
            let mut out = Vec::new();
            key::encode_value(ValueRef::Text(s), &mut out);
            key::encode_value(ValueRef::Int4(i as i32), &mut out);
            out
        };
        prop_assert_eq!(key(&s, i).cmp(&key(&t, j)), (s, i).cmp(&(t, j)));
    }

    #[test]
    fn successor_is_the_end_of_the_prefix((ty, a, b) in typed_pair()) {
        let prefix = key_of(ty, &a);
        let mut end = prefix.clone();
        key::successor(&mut end);
        let longer = [prefix.clone(), key_of(ty, &b)].concat();
        prop_assert!(prefix < end && longer < end);
        if order(ty, &b, &a) == Ordering::Greater {
            prop_assert!(key_of(ty, &b) >= end);
        }
    }

    #[test]
    fn keys_decode((ty, a, _) in typed_pair()) {
        let bytes = key_of(ty, &a);
        let mut rest = &bytes[..];
        if let Some(v) = key::decode(ty, &mut rest) {
            prop_assert!(same(&v, &a));
            prop_assert!(rest.is_empty());
        } else {
            prop_assert!(matches!(ty, Type::Numeric | Type::Jsonb | Type::Interval | Type::Bpchar));
        }
    }

    #[test]
    fn equal_values_hash_alike((_, a, b) in typed_pair()) {
        if compare(a.as_ref(), b.as_ref()) == Ordering::Equal {
            prop_assert_eq!(hash_of(&a), hash_of(&b));
        }
    }

    #[test]
    fn integers_compare_alike_in_every_type(a in any::<i16>(), b in any::<i16>()) {
        let forms = |i: i16| [
            Value::Int2(i), Value::Int4(i.into()), Value::Int8(i.into()),
            Value::Numeric(i.into()), Value::Float8(i.into()), Value::Float4(i.into()),
        ];
        for x in forms(a) {
            for y in forms(b) {
                prop_assert_eq!(compare(x.as_ref(), y.as_ref()), a.cmp(&b));
            }
            prop_assert_eq!(hash_of(&x), hash_of(&Value::Int2(a)));
        }
    }

    #[test]
    fn rows_round_trip(row in typed_row(), stored in 0usize..20) {
        let types: Vec<ColumnType> = row.iter().map(|(ty, _)| ColumnType::new(*ty)).collect();
        let values: Vec<Value> = row.iter().map(|(_, v)| v.clone()).collect();
        let stored = stored.min(values.len());
        let layout = RowLayout::new(&types);
        let mut bytes = vec![7; 3];
        layout.encode(&values[..stored], &mut bytes).unwrap();
        for (i, want) in values.iter().enumerate() {
            let got = layout.column(&bytes, i).to_owned();
            // What the row does not have is NULL.
            let want = if i < stored { want } else { &Value::Null };
            prop_assert!(same(&got, want), "column {} is {:?}", i, got);
            prop_assert_eq!(layout.is_null(&bytes, i), want.is_null());
        }
    }

    #[test]
    fn columns_set_one_by_one_make_the_row_that_is_encoded_whole(
        row in typed_row(),
        order in any::<u64>(),
        before in any::<u64>(),
    ) {
        let types: Vec<ColumnType> = row.iter().map(|(ty, _)| (*ty).into()).collect();
        let values: Vec<Value> = row.into_iter().map(|(_, value)| value).collect();
        let layout = RowLayout::new(&types);
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        layout.encode(&values, &mut wanted).unwrap();
        layout.encode_nulls(&mut found);
        // Some columns have another value first; then all get theirs, from anywhere on.
        let turn = |i: usize| (i + order as usize % values.len().max(1)) % values.len();
        for i in (0..values.len()).filter(|i| before >> (i % 64) & 1 == 1) {
            let other = if values[i].is_null() || types[i].ty != Type::Text { Value::Null } else { Value::text("before") };
            prop_assert!(layout.set_column(&mut found, i, other.as_ref()).unwrap());
        }
        for i in (0..values.len()).map(turn) {
            prop_assert!(layout.set_column(&mut found, i, values[i].as_ref()).unwrap());
        }
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn long_values_go_elsewhere_and_come_back(
        row in typed_row(),
        long in prop::collection::vec((any::<prop::sample::Index>(), 0usize..90_000, any::<bool>()), 0..5),
        target in 20usize..4000,
    ) {
        let mut row = row;
        row.push((Type::Text, Value::Null));
        row.push((Type::Bytea, Value::Null));
        for (at, length, bytes) in long {
            let at = at.index(row.len());
            row[at] = if bytes { (Type::Bytea, Value::Bytea(vec![at as u8; length])) } else { (Type::Text, Value::Text("é".repeat(length / 2))) };
        }
        let types: Vec<ColumnType> = row.iter().map(|(ty, _)| (*ty).into()).collect();
        let values: Vec<Value> = row.into_iter().map(|(_, value)| value).collect();
        let layout = RowLayout::new(&types);
        let (mut whole, mut split, mut joined, mut set) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        layout.encode(&values, &mut whole).unwrap();
        for (i, want) in values.iter().enumerate() {
            prop_assert!(same(&layout.column(&whole, i).to_owned(), want));
            prop_assert_eq!(layout.is_null(&whole, i), want.is_null());
        }
        layout.encode_nulls(&mut set);
        for (i, value) in values.iter().enumerate() {
            prop_assert!(layout.set_column(&mut set, i, value.as_ref()).unwrap());
        }
        prop_assert_eq!(&set, &whole);
        let mut elsewhere: Vec<Vec<u8>> = Vec::new();
        let mut move_out = |place: usize, bytes: &[u8]| {
            assert_eq!(layout.variable_bytes(&whole, place), Some(bytes));
            elsewhere.push(bytes.to_vec());
            Ok(ValuePointer { id: elsewhere.len() as u64 - 1, len: bytes.len() as u32 })
        };
        layout.split(&whole, target, &mut move_out, &mut split).unwrap();
        prop_assert!(is_split(&split) && !is_split(&whole));
        let fixed: usize = types.len() * 20 + 10;
        prop_assert!(split.len() <= target.max(fixed + types.len() * 34), "{} bytes are left", split.len());
        prop_assert_eq!(layout.pointers(&split).unwrap().len(), elsewhere.len());
        let mut fetch = |pointer: ValuePointer, out: &mut Vec<u8>| {
            out.extend_from_slice(&elsewhere[pointer.id as usize]);
            Ok(true)
        };
        prop_assert!(layout.join(&split, &mut fetch, &mut joined).unwrap());
        prop_assert_eq!(&joined, &whole);
        let moved = moved_row(ValuePointer { id: 7, len: 9 });
        prop_assert!(is_split(&moved) && moved_to(&split).is_none() && moved_to(&whole).is_none());
        prop_assert_eq!(moved_to(&moved), Some(ValuePointer { id: 7, len: 9 }));
        // Cut or changed, it is refused or read as something, without a panic.
        for cut in [split.len() / 2, split.len().saturating_sub(1)] {
            let _ = layout.join(&split[..cut], &mut |_, _| Ok(true), &mut joined);
            let _ = layout.pointers(&split[..cut]);
        }
        for (i, _) in types.iter().enumerate() {
            let _ = (layout.column(&split, i), layout.column(&whole[..whole.len() / 2], i), layout.column(&moved, i));
        }
    }

    #[test]
    fn damaged_rows_do_not_panic(
        row in typed_row(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()
    ) {
        let types: Vec<ColumnType> = row.iter().map(|(ty, _)| ColumnType::new(*ty)).collect();
        let values: Vec<Value> = row.iter().map(|(_, v)| v.clone()).collect();
        let layout = RowLayout::new(&types);
        let mut bytes = Vec::new();
        layout.encode(&values, &mut bytes).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len() + 1).max(at));
        let mut out = Vec::new();
        for (i, column) in types.iter().enumerate() {
            let v = layout.column(&bytes, i);
            // Whatever was read can be written, compared and hashed.
            v.write_text(column.ty, &mut out);
            v.write_binary(column.ty, &mut out);
            key::encode_column(v, column.ty, &mut out);
            let _ = compare(v, v);
            hash_of(&v.to_owned());
        }
    }

    #[test]
    fn text_round_trips((ty, a, _) in typed_pair()) {
        prop_assume!(!a.is_null());
        let text = a.as_ref().to_text(ty);
        match Value::parse_text(&text, ColumnType::new(ty)) {
            Ok(b) => prop_assert!(same(&a, &b), "{:?} -> {} -> {:?}", a, text, b),
            Err(e) => prop_assert!(false, "{:?} -> {}: {:?}", a, text, e),
        }
    }

    #[test]
    fn binary_round_trips((ty, a, _) in typed_pair()) {
        prop_assume!(!a.is_null());
        let mut bytes = Vec::new();
        a.as_ref().write_binary(ty, &mut bytes);
        let b = Value::parse_binary(&bytes, ty).unwrap();
        prop_assert!(same(&a, &b), "{:?} -> {:?}", a, b);
        // The scale of a numeric is part of its text.
        prop_assert_eq!(a.as_ref().to_text(ty), b.as_ref().to_text(ty));
    }

    #[test]
    fn no_text_panics(
        text in prop_oneof!["\\PC{0,30}", "[-+0-9.:/TZePYMD ]{0,24}", "[a-zA-Z0-9 :,+-]{0,24}",
            "[{}\",\\\\a]{0,12}"],
        typmod in prop_oneof![Just(-1i32), 0i32..100, Just(0x7fff_0007)]
    ) {
        for info in &TYPES {
            let to = ColumnType::with_typmod(info.ty, typmod.min(if info.ty.is_string() { 100 } else { i32::MAX }));
            if let Ok(v) = Value::parse_text(&text, to) {
                let mut out = Vec::new();
                v.as_ref().write_binary(info.ty, &mut out);
                v.as_ref().write_text(info.ty, &mut out);
            }
            let _ = homenode_types::array::elements(&text, info.ty);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..48)) {
        for info in &TYPES {
            let _ = Value::parse_binary(&bytes, info.ty);
            let _ = key::decode(info.ty, &mut &bytes[..]);
        }
    }

    #[test]
    fn casts_do_not_panic((_, a, _) in typed_pair(), typmod in prop_oneof![Just(-1i32), 0i32..40]) {
        for info in &TYPES {
            let to = ColumnType::with_typmod(info.ty, typmod);
            if let Ok(v) = homenode_types::coerce(a.clone(), to, true) {
                prop_assert!(v.is_null() || RowLayout::new(&[to]).encode(std::slice::from_ref(&v), &mut Vec::new()).is_ok(),
                    "{:?} as {} is {:?}", a, info.name, v);
            }
        }
    }
}
