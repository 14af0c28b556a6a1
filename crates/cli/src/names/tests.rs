use super::nearest;

#[test]
fn the_nearest_name_is_within_a_third_of_its_length() {
    let known = ["orders", "payments", "payments.dlq", "t"];
    let nearest = |name| nearest(name, known.into_iter());
    assert_eq!(nearest("order"), Some("orders"));
    assert_eq!(nearest("paymetns"), Some("payments"));
    assert_eq!(nearest("payments-dlq"), Some("payments.dlq"));
    assert_eq!(nearest("tt"), Some("t"));
    assert_eq!(nearest("clicks"), None);
    assert_eq!(nearest(""), Some("t"));
    assert_eq!(super::nearest("orders", std::iter::empty()), None);
}
