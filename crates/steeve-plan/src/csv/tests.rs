//! Laws of reading and writing, and a table of files that are wrong.
#![allow(clippy::unwrap_used)]

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{CsvFault, Table, read, read_within, write};
use crate::{Align, Block, BlockId, BufferId, Bytes, Id, IdVec, InputLimit, Lifetime, Offset, Overlap, Place, Problem};

/// Reads `text` and shows it the way `write` does.
fn check(text: &str, expected: &str) {
    let table = read(text).unwrap();
    assert_eq!(write(&table), expected, "of {text:?}");
    assert_eq!(read(expected).unwrap(), table, "of {text:?}");
}

fn refuse(text: &str, expected: &str) {
    assert_eq!(read(text).unwrap_err().to_string(), expected, "of {text:?}");
}

const PLAIN: &str = "id,lower,upper,size\na,0,2,8\nb,1,3,4\n";

#[test]
fn what_was_written_is_read_as_it_was() {
    check(PLAIN, PLAIN);
    let full = "id,lower,upper,size,alignment,buffer,offset,follows\na,0,2,8,64,1,64,\nb,2,3,4,64,1,64,a\n";
    check(full, full);
}

#[test]
fn a_block_overlaps_one_of_any_line_at_a_distance() {
    let text = "id,lower,upper,size,overlaps,distance\nb,1,3,8,\"a, too\",18446744073709551615\n\"a, too\",0,2,8,,\n";
    check(text, text);
    let overlap = read(text).unwrap().blocks().as_slice()[0].overlaps.unwrap();
    assert_eq!((overlap.source.index(), overlap.distance), (1, Bytes(u64::MAX)));
    check("id,lower,upper,size,overlaps,distance\na,0,2,8,,\nb,1,3,4,,\n", PLAIN);
    check("id,lower,upper,size,distance\na,0,2,8,\nb,1,3,4,\n", PLAIN);
}

#[test]
fn columns_may_stand_in_any_order() {
    check("size,upper,id,lower\n8,2,a,0\n4,3,b,1\n", PLAIN);
}

#[test]
fn header_names_may_have_capitals() {
    check("ID,Lower,UPPER,siZe\na,0,2,8\nb,1,3,4\n", PLAIN);
}

#[test]
fn spaces_line_ends_marks_and_blank_lines_mean_nothing() {
    check("\u{feff}\r\n id ,\tlower, upper , size\r\n\r\n a , 0, 2 ,8 \r\n   \r\nb,1,3,4", PLAIN);
    check("\n\n\u{a0}id,lower,upper,size\na,0,2,8\n\n\nb,1,3,4\n\n \n", PLAIN);
}

#[test]
fn without_an_id_column_rows_are_numbered_from_0() {
    check("lower,upper,size\n0,2,8\n\n1,3,4\n", "id,lower,upper,size\n0,0,2,8\n1,1,3,4\n");
}

#[test]
fn a_header_alone_is_an_empty_table() {
    check("lower,upper,size", "id,lower,upper,size\n");
    assert_eq!(read("lower,upper,size").unwrap().problem().unwrap().blocks().len(), 0);
}

#[test]
fn empty_optional_fields_are_as_if_the_column_was_missing() {
    check("id,lower,upper,size,alignment,buffer,offset,follows\na,0,2,8,,,,\nb,1,3,4,,,,\n", PLAIN);
}

#[test]
fn quotes_protect_commas_spaces_line_ends_and_quotes() {
    let text = "id,lower,upper,size,follows\n\"a,\"\"b\"\"\n c\",0,2,8,\n\" d \",2,3,4,\"a,\"\"b\"\"\n c\"\n";
    check(text, text);
    let table = read(text).unwrap();
    assert_eq!(table.ids().as_slice(), ["a,\"b\"\n c", " d "]);
    check(
        "id,lower,upper,size\n \"a\" ,0,2,8\n5\" disk,1,3,4\n",
        "id,lower,upper,size\na,0,2,8\n\"5\"\" disk\",1,3,4\n",
    );
}

#[test]
fn the_largest_numbers_are_read() {
    let text = "id,lower,upper,size,alignment,offset\n\
                a,18446744073709551614,18446744073709551615,18446744073709551615,9223372036854775808,18446744073709551615\n";
    check(text, text);
}

#[test]
fn offsets_are_pins_or_a_plan_or_nothing() {
    let table = read("lower,upper,size,buffer,offset\n0,2,8,1,16\n1,3,4,,\n").unwrap();
    let second = BufferId::from_index(1).unwrap();
    let place = Place { buffer: second, offset: Offset(16) };
    let pins = |problem: Problem| problem.blocks().iter().map(|block| block.pinned).collect::<Vec<_>>();
    assert_eq!(pins(table.problem().unwrap()), [None, None]);
    assert_eq!(pins(table.pinned_problem().unwrap()), [Some(place), None]);
    assert_eq!(table.placement().unwrap_err().to_string(), "block 1: no offset");
}

#[test]
fn a_block_is_found_by_its_name_and_may_follow_a_later_line() {
    let table = read("id,lower,upper,size,follows\nb,2,3,4,a\na,0,2,8,\n").unwrap();
    let a = BlockId::from_index(1);
    assert_eq!((table.find("a"), table.find("c")), (a, None));
    assert_eq!(table.blocks().as_slice()[0].follows, a);
}

#[test]
fn what_is_wrong_is_named_with_line_and_column() {
    let columns = "expected one of id, lower, upper, size, alignment, buffer, offset, follows, overlaps, distance";
    let header = "no header: expected the names of the columns, such as id,lower,upper,size";
    for empty in ["", "\n", "\u{feff}", " \r\n\t\n"] {
        refuse(empty, &alloc::format!("line 1: {header}"));
    }
    refuse("a;b", &alloc::format!("line 1, column 1: unknown column: {columns}, got \"a;b\""));
    refuse("id,lower,upper,size,gaps", &alloc::format!("line 1, column 5: unknown column: {columns}, got \"gaps\""));
    refuse("\nid,lower,upper,size,", &alloc::format!("line 2, column 5: unknown column: {columns}, got \"\""));
    refuse("id,ID,lower", "line 1, column 2 (id): repeated column: already in column 1");
    let missing = "line 1: missing column upper: lower, upper and size are required";
    refuse("id,lower,size\na,0,8", missing);
}

#[test]
fn a_wrong_row_is_named_with_what_stood_there() {
    let rows = [
        ("a,0,2", "line 2, column 4 (size): missing field: the line has only 3"),
        ("a,0,2,8,9", "line 2, column 5: too many fields: expected 4, got another: \"9\""),
        ("a,0,2,8,", "line 2, column 5: too many fields: expected 4, got another: \"\""),
        ("a,0,2,", "line 2, column 4 (size): missing number"),
        ("a,0,2,-8", "line 2, column 4 (size): negative number: \"-8\""),
        ("a,-0.5,2,8", "line 2, column 2 (lower): negative number: \"-0.5\""),
        ("a,0,2,8.0", "line 2, column 4 (size): not a whole number in plain digits: \"8.0\""),
        ("a,0,1e3,8", "line 2, column 3 (upper): not a whole number in plain digits: \"1e3\""),
        ("a,0,+2,8", "line 2, column 3 (upper): not a whole number in plain digits: \"+2\""),
        ("a,0,2,8K", "line 2, column 4 (size): not a number: \"8K\""),
        ("a,0,2,-", "line 2, column 4 (size): not a number: \"-\""),
        ("a,0,2,٣", "line 2, column 4 (size): not a number: \"٣\""),
        (
            "a,0,2,18446744073709551616",
            "line 2, column 4 (size): number too large: at most 18446744073709551615, got \"18446744073709551616\"",
        ),
        ("a,2,2,8", "line 2, column 3 (upper): lifetime: empty: starts at step 2, ends at step 2"),
        (",0,2,8", "line 2, column 1 (id): empty id"),
        ("\"\",0,2,8", "line 2, column 1 (id): empty id"),
        ("a,0,2,8\n\nb,0,1,1\n a ,1,3,4", "line 5, column 1 (id): repeated id \"a\": already on line 2"),
        ("\"a,0,2,8\nb,0,2,8", "line 2, column 1: unclosed quote: it opens here"),
        ("\"a\nb\" c,0,2,8", "line 3, column 1: text after a closing quote: \"c\"; write a quote inside quotes twice"),
        ("\"a\nb\",0,2,8\nc,0,2,x", "line 4, column 4 (size): not a number: \"x\""),
    ];
    for (row, expected) in rows {
        refuse(&alloc::format!("id,lower,upper,size\n{row}\n"), expected);
    }
}

#[test]
fn wrong_optional_fields_are_named_too() {
    let rows = [
        ("0,2,8,3,,,", "line 2, column 4 (alignment): alignment: not a power of two: 3"),
        ("0,2,8,0,,,", "line 2, column 4 (alignment): alignment: not a power of two: 0"),
        ("0,2,8,,1,,", "line 2, column 5 (buffer): buffer without an offset: 1"),
        (
            "0,2,8,,4294967295,0,",
            "line 2, column 5 (buffer): buffer index too large: at most 4294967294, got 4294967295",
        ),
        ("0,2,8,,,x,", "line 2, column 6 (offset): not a number: \"x\""),
        ("0,2,8,,,,zz", "line 2, column 7 (follows): unknown block to follow: \"zz\""),
    ];
    for (row, expected) in rows {
        refuse(&alloc::format!("lower,upper,size,alignment,buffer,offset,follows\n{row}\n"), expected);
    }
}

#[test]
fn half_an_overlap_is_named_with_line_and_column() {
    let rows = [
        ("0,2,8,zz,4", "line 2, column 4 (overlaps): unknown block to overlap: \"zz\""),
        ("0,2,8,zz,", "line 2, column 4 (overlaps): overlap without a distance: \"zz\""),
        ("0,2,8,,4", "line 2, column 5 (distance): distance without a block to overlap: 4"),
        ("0,2,8,0,-4", "line 2, column 5 (distance): negative number: \"-4\""),
    ];
    for (row, expected) in rows {
        refuse(&alloc::format!("lower,upper,size,overlaps,distance\n{row}\n"), expected);
    }
    let alone = "line 2, column 4 (overlaps): overlap without a distance: \"0\"";
    refuse("lower,upper,size,overlaps\n0,2,8,0\n", alone);
}

#[test]
fn a_long_field_is_cut_in_messages() {
    let error = read(&"x".repeat(100_000)).unwrap_err().to_string();
    assert!(error.len() < 400 && error.contains("(99840 bytes left out)"), "{error}");
}

/// Puts a long text at every position of a block list that can hold one.
#[test]
fn no_error_echoes_a_long_field_whole() {
    let full = "id,lower,upper,size,alignment,buffer,offset,follows\na,0,2,8,64,1,64,\nb,2,3,4,64,1,64,a\n";
    for place in full.match_indices(|letter: char| letter.is_alphanumeric()).map(|(place, _)| place) {
        for long in ["n", "7", "-7", "é", "\u{1}", "\"\""].map(|letter| letter.repeat(5000)) {
            let text = alloc::format!("{}{long}{}", &full[..place], &full[place..]);
            if let Err(error) = read(&text) {
                assert!(error.to_string().len() < 1500, "{} bytes: {error}", error.to_string().len());
            }
        }
    }
    let (block, long) = (Block::new(Bytes(1), Lifetime::new(0, 1).unwrap()), "n".repeat(5000));
    let lost = block.following(BlockId::from_index(7).unwrap());
    for (ids, blocks) in [([long.clone(), long.clone()], [block; 2]), ([long.clone(), "b".into()], [lost; 2])] {
        let error = Table::new(ids.to_vec(), blocks.to_vec(), alloc::vec![None; 2]).unwrap_err();
        assert!(error.to_string().len() < 400, "{error}");
    }
    let unplaced = Table::new(alloc::vec![long], alloc::vec![block], alloc::vec![None]).unwrap();
    assert!(unplaced.placement().unwrap_err().to_string().len() < 400);
}

#[test]
fn a_text_has_at_most_the_limit() {
    let within = |limit: usize| read_within(PLAIN, InputLimit::new(Bytes(limit as u64)));
    assert_eq!(within(PLAIN.len()), read(PLAIN));
    let error = within(PLAIN.len() - 1).unwrap_err();
    assert!(matches!(error.fault, CsvFault::InputTooLarge(_)));
    assert_eq!(error.to_string(), "input too large: at most 35 bytes are read, got 36");
    let large = "\n".repeat((256 << 20) + 1);
    let error = read(&large).unwrap_err().to_string();
    assert_eq!(error, "input too large: at most 268435456 bytes are read, got 268435457");
    assert_eq!(read_within(&large, InputLimit::new(Bytes(1 << 40))).unwrap_err().fault, CsvFault::NoHeader);
}

#[test]
fn a_line_of_commas_is_not_kept() {
    // As fields these would take more than a gigabyte.
    let commas = ",".repeat(50_000_000);
    assert!(read(&commas).unwrap_err().to_string().contains("unknown column"));
    let error = read(&alloc::format!("id,lower,upper,size\na,0,1,1{commas}\n")).unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 5: too many fields: expected 4, got another: \"\"");
}

#[test]
fn a_table_is_checked_at_the_door() {
    let block = Block::new(Bytes(1), Lifetime::new(0, 1).unwrap());
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<IdVec<BlockId, String>>();
    let two = alloc::vec![block, block];
    let make = |ids: &[&str], blocks: &[Block]| {
        Table::new(names(ids), blocks.to_vec(), alloc::vec![None; blocks.len()]).map_err(|error| error.to_string())
    };
    assert!(make(&["a", "b"], &two).is_ok());
    assert_eq!(make(&["a"], &two).unwrap_err(), "table: lengths differ: 2 blocks, 1 ids, 2 places");
    assert_eq!(make(&["a", ""], &two).unwrap_err(), "block 1: empty id");
    assert_eq!(make(&["a", "a"], &two).unwrap_err(), "blocks 0 and 1: same id \"a\"");
    let lost = [block, block.following(BlockId::from_index(2).unwrap())];
    assert_eq!(make(&["a", "b"], &lost).unwrap_err(), "block b: follows block 2, which does not exist");
}

/// Returns any table, sound as a problem or not.
fn tables() -> impl Strategy<Value = Table> {
    let place = proptest::option::of((0usize..3, any::<u64>()));
    let row = ("\\PC{0,3}|[a-c,\" \n\r]{1,4}", any::<u64>(), any::<u64>(), any::<u64>(), 0u32..64, place, any::<u32>());
    proptest::collection::vec(row, 0..12).prop_map(|rows| {
        let count = rows.len();
        let (mut ids, mut blocks, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (name, start, end, size, log2, place, follows)) in rows.into_iter().enumerate() {
            let (low, high) = (start.min(end).min(u64::MAX - 1), start.max(end));
            let life = Lifetime::new(low, high.max(low + 1)).unwrap();
            let mut block = Block::new(Bytes(size), life).aligned(Align::new(1 << log2).unwrap());
            if follows.is_multiple_of(3) {
                block.follows = BlockId::from_index(follows as usize % count);
            }
            if follows % 3 == 1 {
                let distance = Bytes(size ^ u64::from(follows));
                let source = BlockId::from_index(follows as usize % count).unwrap();
                block.overlaps = Some(Overlap { source, distance });
            }
            // The number makes the name unique.
            ids.push(alloc::format!("{name}{index}{name}"));
            blocks.push(block);
            places.push(place.map(|(buffer, offset)| Place {
                buffer: BufferId::from_index(buffer).unwrap(),
                offset: Offset(offset),
            }));
        }
        Table::new(ids, blocks, places).unwrap()
    })
}

proptest! {
    #[test]
    fn every_table_survives_writing_and_reading(table in tables()) {
        prop_assert_eq!(read(&write(&table)).unwrap(), table);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(id|lower|upper|size|offset|[0-9,\"\n a-])*") {
        if let Ok(table) = read(&text) {
            prop_assert_eq!(read(&write(&table)).unwrap(), table);
        }
    }

    #[test]
    fn no_rows_make_the_reader_panic(text in "[0-9,\"\n\r a-]{0,80}") {
        let text = alloc::format!("id,lower,upper,size\n{text}");
        if let Ok(table) = read(&text) {
            prop_assert_eq!(read(&write(&table)).unwrap(), table);
        }
    }
}
