//! Amounts as the API writes them: read, compared, added and written again.

use proptest::prelude::*;

use super::*;

fn exact(text: &str) -> ExactQuantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn texts_come_back_as_the_api_server_gives_them_back() {
    for (text, canonical) in [
        ("0", "0"),
        ("00", "0"),
        ("-0", "0"),
        ("4", "4"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1."),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("0.5Ki", "512"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("0.1Ki", "102400m"),
        ("-16Gi", "-16Gi"),
        ("-3.01G", "-3010M"),
        ("100e3", "100e3"),
        ("12e4", "120e3"),
        ("1e0", "1e0"),
        ("1E", "1E"),
        ("1e-3", "1e-3"),
        ("8Ei", "9223372036854775807"),
        ("-9Ei", "-9223372036854775807"),
        ("10E", "10E"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("1e-400", "1e-9"),
        ("0.00000000000000000000000000000000000000000000000000000001Gi", "1n"),
        ("Gi", "0"),
        ("-", "0"),
    ] {
        assert_eq!(exact(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn what_the_api_server_refuses_is_refused() {
    for text in ["", "1gi", "1KiB", "1 Gi", " 1", "1.2.3", "--1", "+-1", "0x10", "1,5", "1e", "1ee3", "1-1", "Pi", "१"]
    {
        assert!(text.parse::<ExactQuantity>().is_err(), "{text:?}");
    }
    assert_eq!("1e40".parse::<ExactQuantity>(), Err(ParseQuantityError::TooMuch("1e40".to_owned())));
}

#[test]
fn whole_numbers_are_those_that_kubernetes_holds_as_such() {
    for (text, integer) in [
        ("5", Some(5)),
        ("-5", Some(-5)),
        ("5k", Some(5000)),
        ("5e3", Some(5000)),
        ("16Gi", Some(16 << 30)),
        ("1Ti", Some(1 << 40)),
        ("1000Gi", Some(1000 << 30)),
        ("100000Gi", None),
        ("1Pi", None),
        ("1.5Gi", None),
        ("2000m", None),
        ("2.0", None),
        ("1234567890123456789", None),
        ("10E", None),
    ] {
        assert_eq!(exact(text).as_integer(), integer, "{text}");
    }
    assert_eq!(exact("1500m").checked_add(exact("500m")).unwrap().as_integer(), None);
    assert_eq!(exact("0").checked_add(exact("1k")).unwrap().as_integer(), Some(1000));
    assert_eq!(exact("9E").checked_add(exact("9E")).unwrap().as_integer(), None, "more than 64 bits");
}

#[test]
fn sums_keep_the_first_notation_that_is_not_nothing() {
    assert_eq!(exact("1Gi").plus(exact("1G")).to_string(), "2073741824");
    assert_eq!(exact("0").plus(exact("2Gi")).to_string(), "2Gi");
    assert_eq!(exact("1Gi").minus(exact("2Gi")).to_string(), "-1Gi");
    assert_eq!(exact("1e3").plus(exact("1")).to_string(), "1001");
}

#[test]
fn amounts_round_away_from_zero_to_whole_units() {
    for (text, units) in [("1500m", 2), ("-1500m", -2), ("1n", 1), ("3", 3), ("10E", i64::MAX), ("-10E", i64::MIN)] {
        assert_eq!(exact(text).rounded(), units, "{text}");
    }
}

#[test]
fn requests_are_stepped_in_whole_units() {
    for (amount, base, step, given) in
        [("3", "2", "2", "4"), ("1500m", "2", "2", "2"), ("2500m", "1", "1", "3"), ("5Gi", "1Gi", "2Gi", "5Gi")]
    {
        assert_eq!(exact(amount).round_up(exact(base), exact(step)), exact(given), "{amount}");
    }
    assert_eq!(exact("3").round_up(exact("1"), exact("0")), exact("3"), "no step");
}

#[test]
fn floats_are_near() {
    for (text, float) in [("1500m", 1.5), ("50k", 50000.0), ("0.1", 0.1), ("1Ei", 1_152_921_504_606_846_976.0)] {
        assert!((exact(text).as_approximate_float() / float - 1.0).abs() < 1e-15, "{text}");
    }
}

#[test]
fn the_daemons_amounts_convert_both_ways() {
    let half: Quantity = "1500m".parse().unwrap();
    assert_eq!(ExactQuantity::from(half), exact("1.5"));
    assert_eq!(Quantity::try_from(exact("1.5")), Ok(half));
    assert_eq!(Quantity::try_from(exact("1n")), "1m".parse());
    Quantity::try_from(exact("-1")).unwrap_err();
    Quantity::try_from(exact("10E")).unwrap_err();
}

#[test]
fn numbers_and_null_are_quantities_too() {
    for (json, text) in [("5", "5"), ("-5", "-5"), ("0.25", "250m"), ("null", "0"), ("\" 1Gi \"", "1Gi")] {
        assert_eq!(serde_json::from_str::<ExactQuantity>(json).unwrap(), exact(text), "{json}");
    }
    assert!(serde_json::from_str::<ExactQuantity>("\"4GB\"").unwrap_err().to_string().contains("\"4GB\""));
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = text.parse::<ExactQuantity>();
    }

    #[test]
    fn what_is_read_can_be_written_and_read_again(
        text in "[-+]?[0-9]{0,30}(\\.[0-9]{0,20})?([EPTGMK]i|[numkMGTPE]|[eE][-+]?[0-9]{1,3})?"
    ) {
        if let Ok(quantity) = text.parse::<ExactQuantity>() {
            prop_assert_eq!(quantity.to_string().parse::<ExactQuantity>(), Ok(quantity), "{}", quantity);
            let _ = (quantity.as_integer(), quantity.as_approximate_float(), quantity.rounded());
            let _ = (quantity.plus(quantity), quantity.round_up(quantity, quantity));
        }
    }

    #[test]
    fn daemon_and_scheduler_step_whole_units_alike(amount: u32, base: u32, step in 1_u32..) {
        let [a, b, c] = [amount, base, step].map(|units| Quantity::whole(units.into()));
        let [x, y, z] = [amount, base, step].map(|units| ExactQuantity::whole(units.into()));
        prop_assert_eq!(ExactQuantity::from(a.round_up(b, c)), x.round_up(y, z));
    }

    #[test]
    fn order_is_that_of_the_numbers(a: i32, b: i32) {
        let [x, y] = [a, b].map(|number| exact(&format!("{number}m")));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x.plus(y).minus(y), x);
        prop_assert_eq!(x.sign(), i64::from(a.signum()));
    }
}

#[test]
fn cpu_is_counted_in_thousandths_rounded_up() {
    for (text, milli) in [("1500m", 1500), ("2", 2000), ("1n", 1), ("-1n", -1), ("0.0015", 2), ("99E", i64::MAX)] {
        assert_eq!(exact(text).rounded_milli(), milli, "{text}");
    }
}

#[test]
fn a_text_that_kubernetes_keeps_is_written_as_it_was() {
    // As its parser answered.
    for (text, written) in [
        ("3e0", "3e0"),
        ("3E0", "3E0"),
        ("3e+0", "3e+0"),
        ("1.5e1", "1.5e1"),
        ("1.500", "1.500"),
        ("03", "03"),
        ("+3", "+3"),
        ("012Ki", "012Ki"),
        ("1e1", "10"),
        ("30e-1", "3"),
        ("0e0", "0"),
        ("0.5e1", "5"),
        ("3.0", "3"),
        ("1000e0", "1e3"),
        ("016Ki", "16Ki"),
        ("12e-1", "1200e-3"),
    ] {
        assert_eq!(exact(text).to_string(), written);
    }
    assert_eq!(exact("3e0").plus(ExactQuantity::ZERO).to_string(), "3");
    assert_eq!(exact("3e0"), exact("3"));
    assert_eq!(std::mem::size_of::<ExactQuantity>(), 32, "a text is kept where there is room anyway");
}
