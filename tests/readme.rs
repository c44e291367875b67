//! What the README says of the variables is what the code does.

use gpucap_core::config::table;

#[test]
fn the_readmes_table_of_variables_is_the_codes() {
    let readme = include_str!("../README.md");
    let (_, rest) = readme.split_once("<!-- variables -->\n").expect("the start of the table");
    let (shown, _) = rest.split_once("<!-- /variables -->").expect("the end of the table");
    let expected = table::markdown();
    assert!(shown == expected, "the table in README.md should be:\n\n{expected}");
}
