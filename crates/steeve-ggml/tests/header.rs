//! The header is what the sources say, and C and C++ understand it. `STEEVE_UPDATE=1 cargo test -p steeve-ggml --test
//! header` writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::path::Path;

use harness::{Folder, compiler};

#[test]
fn the_header_is_made_from_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let sources = ["src/gallocr_exports.rs", "src/linked_exports.rs"];
    let builder = sources.iter().fold(cbindgen::Builder::new(), |builder, source| builder.with_src(here.join(source)));
    let mut made = Vec::new();
    builder.with_config(config).generate().unwrap().write(&mut made);
    let file = here.join("include/steeve_ggml.h");
    if std::env::var_os("STEEVE_UPDATE").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let written = std::fs::read(&file).unwrap_or_default();
    assert!(written == made, "{} is not up to date: STEEVE_UPDATE=1 makes it anew", file.display());
}

#[test]
fn c_and_cpp_understand_the_header() {
    let Some(cc) = compiler() else { return };
    let folder = Folder::new("header");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    // Twice, and behind declarations as ggml-alloc.h has them.
    let text = r#"
        #ifdef BESIDE_GGML
        typedef struct ggml_gallocr * ggml_gallocr_t;
        typedef struct ggml_backend_buffer_type * ggml_backend_buffer_type_t;
        #ifdef __cplusplus
        extern "C"
        #endif
        ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft);
        #endif
        #include "steeve_ggml.h"
        #include "steeve_ggml.h"
        bool run(ggml_backend_buffer_type_t type, struct ggml_cgraph * graph);
        bool run(ggml_backend_buffer_type_t type, struct ggml_cgraph * graph) {
            ggml_gallocr_t galloc = ggml_gallocr_new(type);
            bool done = ggml_gallocr_reserve(galloc, graph) && ggml_gallocr_alloc_graph(galloc, graph);
            ggml_gallocr_free(galloc);
            return done && ggml_gallocr_get_buffer_size(galloc, 0) > 0;
        }
        #ifdef STEEVE_GGML_WHOLE
        int place(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor);
        int place(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor) {
            struct ggml_tallocr talloc = ggml_tallocr_new(buffer);
            return ggml_tallocr_alloc(&talloc, tensor);
        }
        #endif
    "#;
    for (file, language) in [("use.c", "c"), ("use.cpp", "c++")] {
        let mut empty = std::process::Command::new(&cc);
        empty.args(["-x", language, "-c", "-o", "empty.o", "/dev/null"]);
        if !empty.current_dir(&folder.0).output().unwrap().status.success() {
            println!("skipped: {} knows no {language}", cc.display());
            continue;
        }
        std::fs::write(folder.0.join(file), text).unwrap();
        for define in ["-DPLAIN", "-DSTEEVE_GGML_WHOLE", "-DBESIDE_GGML"] {
            let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wmissing-declarations"];
            let mut command = std::process::Command::new(&cc);
            command.args(["-x", language, "-c", define, "-o", "use.o", file]).args(warnings).arg("-I").arg(&include);
            let said = command.current_dir(&folder.0).output().unwrap();
            assert!(said.status.success(), "{define}: {}", String::from_utf8_lossy(&said.stderr));
        }
    }
}
