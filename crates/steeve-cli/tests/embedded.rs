//! The example `embedded`: a plan made here, used by a C program that is compiled and run. `STEEVE_UPDATE=1` writes its
//! header anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Folder, golden, steeve};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/embedded").join(name)
}

#[test]
fn the_header_of_the_example_is_what_the_tool_writes() {
    let folder = Folder::new("embedded-header");
    // Named as a user would: the header tells from which file it was made.
    std::fs::copy(example("net.graph"), folder.path("net.graph")).unwrap();
    let out = folder.path("net.h");
    let said = Command::new(env!("CARGO_BIN_EXE_steeve"))
        .args(["--quiet", "view", "net.graph", "-o", "net.h"])
        .current_dir(&folder.0)
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    golden(&example("net.h"), &std::fs::read_to_string(out).unwrap());
}

#[test]
fn the_example_computes_the_same_in_its_arena() {
    let folder = Folder::new("embedded-run");
    let mut tried = 0;
    for (compiler, options) in [
        ("cc", ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"].as_slice()),
        ("cc", &["-std=c11", "-Wall", "-Werror", "-fsanitize=address,undefined"]),
    ] {
        let program = folder.path(&format!("net-{tried}"));
        let built = Command::new(compiler).args(options).arg(example("main.c")).args(["-o", &program, "-lm"]).output();
        let Ok(built) = built else {
            println!("embedded: skipped, there is no C compiler");
            return;
        };
        let trouble = String::from_utf8_lossy(&built.stderr).into_owned();
        if !built.status.success() && options.contains(&"-fsanitize=address,undefined") && trouble.contains("asan") {
            println!("embedded: not under the sanitizers, which are not installed");
            continue;
        }
        assert!(built.status.success(), "{trouble}");
        let ran = Command::new(&program).output().unwrap();
        let out = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{out}");
        assert_eq!(out, "arena of 512 bytes instead of 1488: the same results\n");
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn headers_of_any_names_compile() {
    let folder = Folder::new("embedded-names");
    let rows = "id,lower,upper,size,alignment\n\
                x,0,2,8,4\nX,1,3,4,4\n\"x \",2,3,4,4\narena,0,1,4,1\nx_offset,3,4,4,1\nx_2,3,4,4,1\n\
                äöü,4,5,70000,1\n\"*/ #error\",4,5,8,1\n123,5,6,5000000000,1\n\"a\nb\",6,7,1,1\n";
    let file = folder.file("7 of 9.csv", rows);
    for options in [[].as_slice(), &["--max-buffer", "64"], &["--prefix", "_net__2_"]] {
        let out = folder.path("names.h");
        steeve(&[&["view", "--quiet", &file, "-o", &out], options].concat()).expect(0);
        let text = std::fs::read_to_string(&out).unwrap();
        let mut names: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("#define ")?.split([' ', '(']).next()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{text}");
        let program = folder.file("use.c", "#include \"names.h\"\nint main(void) { return 0; }\n");
        for options in [["-x", "c", "-std=c99"], ["-x", "c++", "-std=c++11"]] {
            let built = Command::new("cc").args(options).args(["-Wall", "-Werror", "-fsyntax-only", &program]).output();
            let Ok(built) = built else { return };
            let trouble = String::from_utf8_lossy(&built.stderr).into_owned();
            assert!(built.status.success() || trouble.contains("cc1plus"), "{trouble}\n{text}");
        }
    }
}
