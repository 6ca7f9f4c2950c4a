use super::*;
use crate::SqlState;
use crate::value::{ValueRef, compare};
use proptest::prelude::*;
use std::cmp::Ordering;

fn refused(text: &str) -> (String, String) {
    let (by_check, by_parse) = (check(text).unwrap_err(), parse(text).unwrap_err());
    assert_eq!(by_check.code, SqlState::INVALID_TEXT_REPRESENTATION);
    assert_eq!(by_check.detail, by_parse.detail, "{text}");
    assert_eq!(by_check.context, by_parse.context, "{text}");
    (by_check.detail.clone().unwrap(), by_check.context.clone().unwrap())
}

#[test]
fn canonical_texts_are_jsonbs() {
    let cases = [
        (r#" {"bb":1, "a" : [true , null,"x\u00e9\n"], "c":{}} "#, r#"{"a": [true, null, "xé\n"], "c": {}, "bb": 1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a": 2}"#),
        ("1.50", "1.50"),
        ("-0", "0"),
        ("1e3", "1000"),
        (r#""\ud83d\ude00\/\u0001""#, "\"😀/\\u0001\""),
        ("[]", "[]"),
    ];
    for (text, want) in cases {
        assert_eq!(canonical(text).unwrap(), want);
        assert_eq!(canonical(want).unwrap(), want);
    }
}

#[test]
fn what_is_no_json_is_refused_as_postgresql_does() {
    let cases = [
        ("", "The input string ended unexpectedly.", "JSON data, line 1: "),
        ("{\"a\":", "The input string ended unexpectedly.", "JSON data, line 1: {\"a\":"),
        ("[1,]", "Expected JSON value, but found \"]\".", "JSON data, line 1: [1,]"),
        ("[1 2]", "Expected \",\" or \"]\", but found \"2\".", "JSON data, line 1: [1 2..."),
        ("{1:2}", "Expected string or \"}\", but found \"1\".", "JSON data, line 1: {1..."),
        ("{\"a\",2}", "Expected \":\", but found \",\".", "JSON data, line 1: {\"a\",..."),
        ("nope", "Token \"nope\" is invalid.", "JSON data, line 1: nope"),
        ("01", "Token \"01\" is invalid.", "JSON data, line 1: 01"),
        ("1.", "Token \"1.\" is invalid.", "JSON data, line 1: 1."),
        ("\"a", "Token \"\"a\" is invalid.", "JSON data, line 1: \"a"),
        ("\"\\x\"", "Escape sequence \"\\x\" is invalid.", "JSON data, line 1: \"\\x..."),
        ("1 2", "Expected end of input, but found \"2\".", "JSON data, line 1: 1 2"),
        ("{\n\"a\": x}", "Token \"x\" is invalid.", "JSON data, line 2: \"a\": x..."),
    ];
    for (text, detail, context) in cases {
        assert_eq!(refused(text), (detail.to_string(), context.to_string()), "{text}");
    }
    assert_eq!(parse("\"\\u0000\"").unwrap_err().code, SqlState::UNTRANSLATABLE_CHARACTER);
    assert!(check("\"\\u0000\"").is_ok(), "json keeps it");
    assert_eq!(parse("1e40").unwrap_err().code, SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
}

#[test]
fn deep_nesting_is_an_error_and_fits_a_small_stack() {
    let nested =
        |depth: usize| format!("{}{}", "[{\"a\":".repeat(depth / 2), "1".to_string() + &"}]".repeat(depth / 2));
    let on_small_stack = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
        let deepest = nested(MAX_DEPTH);
        let tree = parse(&deepest).unwrap();
        check(&deepest).unwrap();
        assert_eq!(canonical(&tree.to_string()).unwrap(), tree.to_string());
        assert!(pretty(&tree).len() > deepest.len());
        let mut key = Vec::new();
        write_key(&tree, &mut key);
        assert_eq!(concat(Json::Array(vec![tree.clone()]), tree).unwrap_err().code, SqlState::STATEMENT_TOO_COMPLEX);
        strip_nulls(&deepest).unwrap();
        for depth in [MAX_DEPTH + 2, 1_000_000] {
            assert_eq!(parse(&nested(depth)).unwrap_err().code, SqlState::STATEMENT_TOO_COMPLEX);
            assert_eq!(check(&nested(depth)).unwrap_err().code, SqlState::STATEMENT_TOO_COMPLEX);
        }
    });
    on_small_stack.unwrap().join().unwrap();
}

/// PostgreSQL's order said plainly: the model that key bytes are held against.
fn model(a: &Json<'_>, b: &Json<'_>, whole: bool) -> Ordering {
    let empty = |tree: &Json<'_>| matches!(tree, Json::Array(items) if items.is_empty());
    if whole && empty(a) != empty(b) {
        return if empty(a) { Ordering::Less } else { Ordering::Greater };
    }
    let rank = |tree: &Json<'_>| match tree {
        Json::Null => 0,
        Json::String(_) => 1,
        Json::Number(_) => 2,
        Json::Bool(_) => 3,
        Json::Array(_) => 4,
        Json::Object(_) => 5,
    };
    let members = |a: &Json<'_>, b: &Json<'_>| model(a, b, false);
    match (a, b) {
        (Json::String(a), Json::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Json::Number(a), Json::Number(b)) => a.cmp(b),
        (Json::Bool(a), Json::Bool(b)) => a.cmp(b),
        (Json::Array(a), Json::Array(b)) => a.len().cmp(&b.len()).then_with(|| {
            a.iter().zip(b).map(|(a, b)| members(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }),
        (Json::Object(a), Json::Object(b)) => a.len().cmp(&b.len()).then_with(|| {
            let mut pairs = a.iter().zip(b);
            let pair = |((a, x), (b, y)): (&(_, Json<'_>), &(_, Json<'_>))| {
                let (a, b): (&std::borrow::Cow<'_, str>, &std::borrow::Cow<'_, str>) = (a, b);
                a.as_bytes().cmp(b.as_bytes()).then_with(|| members(x, y))
            };
            pairs.by_ref().map(pair).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn document() -> BoxedStrategy<Json<'static>> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        (-200i64..200, 0u32..3).prop_map(|(m, s)| Json::Number(rust_decimal::Decimal::new(m, s))),
        "[ab\"\\\\\u{1}é\n]{0,3}".prop_map(|text| Json::String(text.into())),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            proptest::collection::vec(("[ab\\\\é]{0,2}", inner), 0..4)
                .prop_map(|pairs| Json::object(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())),
        ]
    })
    .boxed()
}

proptest! {
    #[test]
    fn written_documents_are_read_back(tree in document()) {
        let text = tree.to_string();
        prop_assert!(check(&text).is_ok());
        prop_assert_eq!(&parse(&text).unwrap(), &tree);
        let indented = pretty(&tree);
        prop_assert_eq!(&parse(&indented).unwrap(), &tree);
    }

    #[test]
    fn order_is_the_models(a in document(), b in document()) {
        let (x, y) = (a.to_string(), b.to_string());
        let (x, y) = (ValueRef::Jsonb(&x), ValueRef::Jsonb(&y));
        prop_assert_eq!(compare(x, y), model(&a, &b, true), "{} and {}", a, b);
        let key = |tree| { let mut key = Vec::new(); write_key(tree, &mut key); key };
        prop_assert_eq!(key(&a).cmp(&key(&b)), model(&a, &b, true));
    }

    #[test]
    fn parts_are_those_of_the_tree(tree in document()) {
        let text = tree.to_string();
        let parts: Vec<_> = members(&text).map(|member| member.unwrap()).collect();
        match &tree {
            Json::Array(items) => {
                prop_assert_eq!(parts.len(), items.len());
                for (number, item) in items.iter().enumerate() {
                    prop_assert_eq!(element(&text, number as i64).unwrap().unwrap(), item.to_string());
                    let from_end = number as i64 - items.len() as i64;
                    prop_assert_eq!(element(&text, from_end).unwrap().unwrap(), item.to_string());
                }
                prop_assert!(element(&text, items.len() as i64).unwrap().is_none());
            }
            Json::Object(pairs) => {
                prop_assert_eq!(parts.len(), pairs.len());
                for (key, value) in pairs {
                    prop_assert_eq!(at_path(&text, &[key]).unwrap().unwrap(), value.to_string());
                }
            }
            _ => prop_assert!(parts.is_empty()),
        }
    }

    #[test]
    fn a_document_contains_itself_and_no_text_panics(
        tree in document(),
        text in prop_oneof!["[\\[\\]{}:,\"\\\\u0dDeE+.a1 \n-]{0,24}", "\\PC{0,12}"]
    ) {
        prop_assert!(contains(&tree, &tree));
        prop_assert_eq!(check(&text).is_err(), parse(&text).err().is_some_and(|e| {
            e.detail.as_deref() != Some("\\u0000 cannot be converted to text.")
                && !e.detail.as_deref().unwrap_or("").contains("surrogate")
                && e.code != SqlState::NUMERIC_VALUE_OUT_OF_RANGE
        }));
        members(&text).for_each(|_| {});
        let _ = (strip_nulls(&text), at_path(&text, &["a", "0"]), scalar_text(&text), kind(&text));
    }
}
