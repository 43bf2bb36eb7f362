//! `--capacity [MEMORY=]SIZE`: it means the same in every command, and `check` names what is at the peak.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use serde_json::Value;

use crate::harness::{Folder, corpus, json, steeve};

const TWO_MEMORIES: &str = "memory gpu\nmemory host\nt = input f32[8] @host\nx = input f32[8] @gpu\n\
                            kq-0 = silu x @gpu\ny = add kq-0 x !output @gpu\nz = neg t !output @host\n";

#[test]
fn a_capacity_with_a_name_is_for_that_memory() {
    let folder = Folder::new("capacity-named");
    let graph = folder.file("two.graph", TWO_MEMORIES);
    let list = folder.file("list.csv", "id,lower,upper,size\na,0,1,64\n");
    for command in ["plan", "check", "show", "view", "compare"] {
        for (capacities, status) in [
            (["64"].as_slice(), 0),
            (&["63"], 1),
            (&["gpu=64", "host=32"], 0),
            (&["gpu=63"], 1),
            (&["host=31"], 1),
            (&["1G", "gpu=63"], 1),
            (&["1", "gpu=1G", "host=1G"], 0),
            (&["gpu=64", "disk=1G"], 2),
            (&["1G", "1G"], 2),
            (&["gpu=1G", "gpu=1G"], 2),
        ] {
            let options: Vec<&str> = capacities.iter().flat_map(|it| ["--capacity", it]).collect();
            steeve(&[&[command, &graph], options.as_slice()].concat()).expect(status);
        }
        steeve(&[command, &graph, "--capacity", "disk=1G"])
            .expect(2)
            .complains(&["--capacity disk: no such memory: expected one of gpu, host"]);
        if command != "check" {
            steeve(&[command, &list, "--capacity", "memory=64"]).expect(0);
            steeve(&[command, &list, "--capacity", "memory=63"]).expect(1);
            steeve(&[command, &list, "--capacity", "CPU=64"]).expect(2).complains(&["expected one of memory"]);
        }
    }
}

#[test]
fn of_several_files_one_must_have_each_memory_that_is_named() {
    let folder = Folder::new("capacity-files");
    let (graph, list) =
        (folder.file("two.graph", TWO_MEMORIES), folder.file("list.csv", "id,lower,upper,size\na,0,1,64\n"));
    for command in ["plan", "compare"] {
        steeve(&[command, &graph, &list, "--capacity", "gpu=64"]).expect(0);
        steeve(&[command, &graph, &list, "--capacity", "gpu=63"]).expect(1);
        let said = steeve(&[command, &graph, &list, "--capacity", "gpus=64"]);
        said.expect(2).complains(&["expected one of ", "gpu, host", "memory"]);
    }
    // Nothing is written for a capacity that could not be asked for.
    let out = folder.path("plan.json");
    steeve(&["plan", &graph, "--capacity", "gpus=64", "-o", &out]).expect(2);
    assert!(!std::fs::exists(&out).unwrap());
}

#[test]
fn a_plan_above_its_capacity_is_told_with_what_is_at_the_peak() {
    let folder = Folder::new("capacity-peak");
    let (graph, plan) = (folder.file("two.graph", TWO_MEMORIES), folder.path("plan.json"));
    let said = steeve(&["check", &graph, "--capacity", "gpu=60"]);
    let expected = format!(
        "{graph}: memory gpu has 64 B, 4 B more than its capacity of 60 B; largest at node 0 (kq-0): x 32 B, kq-0 32 B\n"
    );
    assert_eq!(said.expect(1).out, expected);
    said.complains(&["holds but does not fit: 1 memory above --capacity"]);
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    for args in [["check", &graph, &plan].as_slice(), &["check", &graph]] {
        let line = json(&steeve(&[args, &["--capacity", "60", "--json"]].concat()).expect(1).out);
        let fault = &line["faults"][0];
        assert_eq!(
            (&line["holds"], &fault["kind"], &fault["memory"]),
            (&false.into(), &"capacity".into(), &"gpu".into())
        );
        let names: Vec<&str> =
            fault["alive"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["x", "kq-0"], "{line}");
        let ids: Vec<u64> = fault["alive"].as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, [1, 2], "{line}");
        assert_eq!((&fault["bytes"], &fault["capacity"]), (&64.into(), &60.into()), "{line}");
        assert_eq!(line["buffers"][0]["peak"], 64, "what holds has figures, be it too large");
    }
}

#[test]
fn five_of_a_real_peak_are_named() {
    let graph = corpus("graphs/multi/qwen3-30b-a3b.gpu1ncmoe.c4096.fa1.out1.pp.json.gz");
    let line = steeve(&["check", &graph, "--capacity", "FAKE0=128M", "--capacity", "FAKE_Host=64M", "--json"]);
    let line = json(line.expect(1).out.lines().next().unwrap());
    let [fault] = line["faults"].as_array().unwrap().as_slice() else { panic!("{line}") };
    let alive = fault["alive"].as_array().unwrap();
    assert_eq!((alive.len(), &fault["memory"]), (5, &"FAKE0".into()));
    assert_eq!(
        (&alive[0]["role"], &alive[0]["layer"], &alive[0]["last_use"]),
        (&"weight copy".into(), &46.into(), &"read".into())
    );
    // The sentence is short and rounded, the object is exact.
    let message = fault["message"].as_str().unwrap();
    assert!(
        message.starts_with("memory FAKE0 has 160.28 MiB, 32.28 MiB more than its capacity of 128.00 MiB; largest ")
    );
    assert!(message.chars().count() < 320, "{message}");
    assert_eq!(fault["bytes"], 168_061_056);
    // Tensors go by the ids of show.
    let shown = json(&steeve(&["show", &graph, "--json", "--top", "5"]).expect(0).out);
    let ids = |alive: &Value| -> Vec<Value> { alive.as_array().unwrap().iter().map(|it| it["id"].clone()).collect() };
    assert!(ids(&fault["alive"]).iter().all(|id| id.is_u64()), "{line}");
    assert_eq!(ids(&fault["alive"]), ids(&shown["memories"][0]["alive"]));
    steeve(&["check", &graph, "--capacity", "161M"]).expect(0);
}
