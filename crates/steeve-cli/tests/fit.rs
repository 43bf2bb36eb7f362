//! `steeve fit`: a graph that needs no more than there is, what that costs, and what is in the way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use crate::harness::{Folder, json, steeve};

const FEED_FORWARD: &str = "w = external f32[16,640]; v = external f32[640,16]\nx = input f32[16,80]\nup = mul_mat w x\n\
                            act = silu up\ndown = mul_mat v act\ny = add down x !output\n";

#[test]
fn what_fits_is_written_as_a_graph_and_as_its_plan() {
    let folder = Folder::new("fit-written");
    let graph = folder.file("big.graph", FEED_FORWARD);
    let [small, plan, page] = ["small.graph", "plan.json", "after.html"].map(|name| folder.path(name));
    let said = steeve(&["fit", &graph, "--capacity", "100000", "--bytes", "-o", &small, "-o", &plan, "-o", &page]);
    assert!(said.expect(0).out.contains("80 rows in 3 parts: nodes 0 (up) to 2 (down)"), "{}", said.out);
    steeve(&["check", &small, &plan, "--capacity", "100000"]).expect(0);
    steeve(&["plan", &small, "--capacity", "100000"]).expect(0);
    steeve(&["plan", &graph, "--capacity", "100000"]).expect(1);
    assert!(std::fs::read_to_string(&page).unwrap().contains("act (part 2)"));
}

#[test]
fn what_does_not_fit_is_said_with_the_smallest_that_was_reached() {
    let folder = Folder::new("fit-not");
    let (graph, out) = (folder.file("big.graph", FEED_FORWARD), folder.path("small.graph"));
    let said = steeve(&["fit", &graph, "--capacity", "1000", "-o", &out]);
    said.expect(1)
        .complains(&["memory memory: too small: 1000 bytes available, at least ", "alive there: x (5120 bytes)"]);
    assert!(!std::fs::exists(&out).unwrap());
    let line = json(&steeve(&["fit", &graph, "--capacity", "0", "--parts", "4", "--json"]).expect(1).out);
    assert_eq!((&line["fits"], &line["steps"][2]["more_nodes"]), (&false.into(), &10.into()));
    let (tile, why) = (&line["steps"][2], &line["too_large"]);
    assert_eq!((&tile["action"], &tile["parts"], &tile["first"]["name"]), (&"tile".into(), &4.into(), &"up".into()));
    assert_eq!(
        (&why["memory"], &why["capacity"], &why["alive"][0]["name"]),
        (&"memory".into(), &0.into(), &"up (part 0)".into())
    );
    assert!(why["needed"].as_u64().unwrap() >= why["alive"][0]["bytes"].as_u64().unwrap());
    // A token beside it is reserved, too.
    let token = folder.file("token.graph", "x = input f32[100000]; y = sqr x !output");
    steeve(&["fit", &graph, "--beside", &token, "--capacity", "100000"])
        .expect(1)
        .complains(&["at least 400000 needed"]);
    steeve(&["fit", &graph, "--beside", &token, "--capacity", "400000"]).expect(0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new("fit-refused");
    let graph = folder.file("big.graph", FEED_FORWARD);
    for parts in ["0", "-1", "x", "18446744073709551616"] {
        let said = steeve(&["fit", &graph, "--capacity", "1M", &format!("--parts={parts}")]);
        said.expect(2).complains(&["not a number of parts: expected 1 or more in decimal digits, got"]);
    }
    steeve(&["fit", &graph]).expect(2).complains(&["--capacity: missing: expected what there is"]);
    steeve(&["fit", &graph, "--capacity", "gpu=1M"]).expect(2).complains(&["no such memory: expected one of memory"]);
    steeve(&["fit", &graph, "--capacity", "1M", "-o", "plan.txt"]).expect(2).complains(&["unknown file type"]);
    steeve(&["fit", &graph, "--capacity", "1M", "-o", &graph]).expect(2).complains(&["would overwrite the input"]);
    let list = folder.file("list.csv", "id,lower,upper,size\na,0,1,64\n");
    steeve(&["fit", &list, "--capacity", "1M"]).expect(2).complains(&["fit is for graphs: got a block list"]);
}
