//! Whatever is in a folder of plans, and however many use it, a graph gets a plan that is right.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use steeve_graph::{Best, Budget, Unread, plan_beside_ggml, plan_graph, replay};

use super::*;

/// A folder that is gone at the end of its test. The folder of plans within is not there yet.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("steeve-plans-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn plans(&self) -> PathBuf {
        self.0.join("plans")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A graph with gaps that ggml's free list does not use, a view and a tensor that is taken over.
fn gapped(scale: u64) -> AssignedGraph {
    let text = format!(
        "memory cpu align=32
         x = input f32[{0}]; a = mul_mat f32[{0}] x x; b = mul_mat f32[{1}] a a; v = view f32[{0}]+0 b
         c = mul_mat f32[{2}] v v; d = sqr c; e = mul_mat f32[8] d d !output",
        32 * scale,
        64 * scale,
        96 * scale
    );
    text.parse().unwrap()
}

fn best() -> PlanOptions {
    with(GraphStrategy::Best(Best::new(Budget::Nodes(100))))
}

fn with(strategy: GraphStrategy) -> PlanOptions {
    PlanOptions::new(strategy).with_reuse(Reuse::Ggml)
}

/// The plan, whether a strategy ran, and where the plan came from.
fn solved(folder: &Path, graph: &AssignedGraph, options: &PlanOptions) -> (GraphPlan, bool, PlanOrigin) {
    let planned = Cell::new(false);
    let solved = solve(Some(folder), graph, options, |graph, options| {
        assert!(!planned.replace(true));
        plan_beside_ggml(graph, options)
    });
    let SolvedPlan { plan, ggml, origin } = solved.unwrap();
    replay(graph, &plan.places()).unwrap();
    assert_eq!(ggml, plan_beside_ggml(graph, options).unwrap().ggml);
    (plan, planned.get(), origin)
}

/// The file of a graph's plan, with that plan in it, as it is on the disk.
fn written(folder: &Path, graph: &AssignedGraph) -> (PathBuf, Vec<u8>) {
    solved(folder, graph, &best());
    let file = folder.join(graph.plan_file_name(&best()));
    let bytes = fs::read(&file).unwrap();
    (file, bytes)
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text).unwrap();
    packed.finish().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn a_graph_is_planned_once_and_then_no_strategy_runs() {
    let folder = Folder::new("once");
    let plans = folder.plans();
    for scale in [1, 2, 1, 3] {
        let graph = gapped(scale);
        let name = graph.plan_file_name(&best());
        let is_new = !plans.join(&name).exists();
        let (first, planned, origin) = solved(&plans, &graph, &best());
        assert_eq!(planned, is_new);
        let file = plans.join(&name);
        let expected = if is_new { PlanOrigin::Written(file.clone(), None) } else { PlanOrigin::Read(file.clone()) };
        assert_eq!(origin, expected);
        let (again, planned, origin) = solved(&plans, &graph, &best());
        assert_eq!((planned, origin), (false, PlanOrigin::Read(file)));
        assert_eq!(again.places(), first.places());
        // A budget says how good a plan may be, not which graph it is of.
        let longer = with(GraphStrategy::Best(Best::default()));
        assert!(!solved(&plans, &graph, &longer).1);
    }
    let mut expected = [1, 2, 3].map(|scale| gapped(scale).plan_file_name(&best()));
    expected.sort();
    assert_eq!(names(&plans), expected, "and nothing is left behind");
}

#[test]
fn plans_that_are_made_sooner_than_read_leave_the_folder_alone() {
    let folder = Folder::new("fast");
    for strategy in [GraphStrategy::Fast, GraphStrategy::Ggml] {
        let (_, planned, origin) = solved(&folder.plans(), &gapped(1), &with(strategy));
        assert_eq!((planned, origin), (true, PlanOrigin::Made));
    }
    assert!(!folder.plans().exists());
}

#[test]
fn a_damaged_file_is_refused_and_replaced() {
    let folder = Folder::new("damaged");
    let (plans, graph) = (folder.plans(), gapped(1));
    let (file, whole) = written(&plans, &graph);
    let expected = solved(&plans, &graph, &best()).0.places();
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).step_by(11).map(|length| whole[..length].to_vec()).collect();
    let text = unpacked(&file, InputLimit::DEFAULT).unwrap();
    for bit in 0..8 {
        let flipped = |bytes: &[u8], at: usize| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1 << bit;
            bytes
        };
        damaged.extend((bit..whole.len()).step_by(97).map(|at| flipped(&whole, at)));
        damaged.extend((bit..text.len()).step_by(97).map(|at| packed(&flipped(text.as_bytes(), at))));
    }
    damaged.extend([
        text.into_bytes(),
        b"\x1f\x8b".to_vec(),
        vec![0; 1000],
        packed(b""),
        packed(b"{}"),
        packed(&[0xff; 99]),
    ]);
    let mut refused = 0;
    for bytes in damaged {
        fs::write(&file, &bytes).unwrap();
        let (plan, planned, origin) = solved(&plans, &graph, &best());
        // Not every bit says something about the plan: the time of packing does not.
        let expected_origin = matches!(origin, PlanOrigin::Written(_, Some(_)));
        assert_eq!(planned, expected_origin, "{origin:?}");
        if planned {
            refused += 1;
            assert_eq!(plan.places(), expected);
            assert_eq!(fs::read(&file).unwrap(), whole);
        }
    }
    assert!(refused > 50, "{refused}");
    assert_eq!(names(&plans).len(), 1);
}

#[test]
fn a_file_that_unpacks_to_more_than_any_plan_is_not_unpacked() {
    let folder = Folder::new("bomb");
    let (plans, graph) = (folder.plans(), gapped(1));
    let (file, whole) = written(&plans, &graph);
    let most = limit(&graph).bytes().0;
    assert!(most < 1 << 20);
    fs::write(&file, packed(&vec![b' '; 64 << 20])).unwrap();
    assert_eq!(unpacked(&file, limit(&graph)).unwrap().len() as u64, most + 1);
    let (_, planned, origin) = solved(&plans, &graph, &best());
    assert!(planned && origin.to_string().contains("input too large"), "{origin}");
    assert_eq!(fs::read(&file).unwrap(), whole);
}

#[test]
fn whatever_a_file_says_the_log_has_one_line_for_it() {
    let folder = Folder::new("lines");
    let (plans, graph) = (folder.plans(), gapped(1));
    let (file, _) = written(&plans, &graph);
    for text in ["{\"a\\nsteeve: b\\u001b[2J\": 1}", "\n\n\u{1b}", "{\"version\":\"\\n\"}"] {
        fs::write(&file, packed(text.as_bytes())).unwrap();
        let line = solved(&plans, &graph, &best()).2.to_string();
        assert!(line.contains("refused") && !line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn a_plan_of_another_graph_or_under_other_rules_is_refused() {
    let folder = Folder::new("foreign");
    let (plans, graph) = (folder.plans(), gapped(2));
    let (file, whole) = written(&plans, &graph);
    let fast = with(GraphStrategy::Fast);
    let other = |graph: &AssignedGraph, options: &PlanOptions| plan_graph(graph, options).unwrap().to_json();
    for (text, why) in [
        (other(&gapped(1), &best()), "too small"),
        (other(&"x = input f32[4]; y = neg x !output".parse().unwrap(), &best()), "another graph"),
        (other(&graph, &fast), "strategy: expected best, got fast"),
        (other(&graph, &PlanOptions::new(GraphStrategy::Ggml)), "strategy: expected best, got ggml"),
        (other(&graph, &best().with_reuse(Reuse::Extended)), "reuse: expected ggml, got more"),
        (other(&graph, &best().with_unread(Unread::Keep)), "unread: expected free-inputs, got keep"),
    ] {
        fs::write(&file, packed(text.as_bytes())).unwrap();
        let (_, planned, origin) = solved(&plans, &graph, &best());
        assert!(planned && origin.to_string().contains(why), "{origin}");
        assert!(origin.to_string().contains("in place of a file that was refused: "), "{origin}");
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
}

#[test]
fn a_plan_that_is_larger_than_ggmls_is_refused() {
    let graph: AssignedGraph = "x = input f32[256]; y = sqr x; z = neg y !output".parse().unwrap();
    let options = best().with_reuse(Reuse::None);
    let (plan, answer) = (plan_graph(&graph, &options).unwrap(), ggml_placement(&graph).unwrap());
    let why = refusal(&plan, &options, &answer).unwrap();
    assert_eq!(why, "memory memory: larger than ggml's plan: expected at most 1024 bytes, got 2048");
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let folder = Folder::new("odd");
    let (plans, graph) = (folder.plans(), gapped(1));
    let (file, whole) = written(&plans, &graph);
    let place = |kind: &str| {
        fs::remove_file(&file).unwrap();
        match kind {
            "pipe" => {
                assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
            }
            "zeros" => symlink("/dev/zero", &file).unwrap(),
            "circle" => symlink(&file, &file).unwrap(),
            "nowhere" => symlink("/nowhere/at/all", &file).unwrap(),
            _ => fs::create_dir(&file).unwrap(),
        }
    };
    for kind in ["pipe", "zeros", "circle", "nowhere"] {
        place(kind);
        let (_, planned, origin) = solved(&plans, &graph, &best());
        assert!(planned && matches!(origin, PlanOrigin::Written(..)), "{kind}: {origin:?}");
        assert_eq!(fs::read(&file).unwrap(), whole, "{kind}");
    }
    place("folder");
    let (_, planned, origin) = solved(&plans, &graph, &best());
    assert!(planned && matches!(origin, PlanOrigin::NotWritten(..)), "{origin:?}");
    assert!(origin.to_string().contains("(the file there was refused: not a regular file)"), "{origin}");
    assert_eq!(names(&plans).len(), 1, "and nothing is left behind");
}

#[test]
fn a_folder_that_can_not_be_written_to_does_no_harm() {
    let folder = Folder::new("closed");
    let graph = gapped(1);
    let nothing = |plans: &Path| {
        let (_, planned, origin) = solved(plans, &graph, &best());
        assert!(planned && matches!(origin, PlanOrigin::NotWritten(..)), "{origin:?}");
    };
    // One level of folders is made, not two.
    nothing(&folder.0.join("two/levels"));
    assert!(names(&folder.0).is_empty());
    let file = folder.0.join("file");
    fs::write(&file, "no folder").unwrap();
    nothing(&file);
    nothing(&file.join("plans"));
    nothing(Path::new("/proc/nowhere"));
    nothing(Path::new("/dev/null"));
    let plans = folder.plans();
    let (path, whole) = written(&plans, &graph);
    for (mode, of) in [(0o000, &path), (0o500, &plans), (0o000, &plans)] {
        let before = fs::metadata(of).unwrap().permissions();
        fs::set_permissions(of, fs::Permissions::from_mode(mode)).unwrap();
        // To root all of them are open.
        solved(&plans, &graph, &best());
        solved(&plans, &gapped(5), &best());
        fs::set_permissions(if of == &path { &path } else { &plans }, before).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn ggmls_own_layout_is_kept_where_a_hold_would_cost_more_than_it() {
    let folder = Folder::new("hold");
    let graph: AssignedGraph = "memory gpu align=32 hold=32; memory cpu align=32
         spare = input f32[4096] @cpu; x = input f32[1024] @cpu; y = sqr x @cpu; z = concat f32[1024,4] y y @cpu
         a = sqr z @gpu; b = concat f32[1024,8] a a @gpu; c = sum_rows b @gpu; d = concat f32[1,16] c c @gpu
         e = sqr d @gpu !output"
        .parse()
        .unwrap();
    let (first, ..) = solved(&folder.plans(), &graph, &best());
    let keeps_extra_lifetime =
        |plan: &GraphPlan| plan.memories().iter().map(|it| it.keeps_extra_lifetime).collect::<Vec<_>>();
    assert_eq!(keeps_extra_lifetime(&first), [false, true]);
    let (again, planned, _) = solved(&folder.plans(), &graph, &best());
    assert!(!planned);
    assert_eq!((again.places(), keeps_extra_lifetime(&again)), (first.places(), keeps_extra_lifetime(&first)));
}

#[test]
fn a_plan_that_would_be_refused_is_not_written() {
    let folder = Folder::new("unwritten");
    // ggml frees `a` early, so its layout can't be used; and to hold sources would take more than ggml does.
    let graph: AssignedGraph = "memory m align=32 hold=32
         x = input f32[1024]; a = cont x; v = view f32[1024] a !output; b = sqr v; c = concat f32[1024,4] b b
         d = sum_rows c; e = concat f32[1,32] d d; f = concat f32[1024,4] x x !output"
        .parse()
        .unwrap();
    let (_, planned, origin) = solved(&folder.plans(), &graph, &best());
    assert!(planned && origin.to_string().contains("keeps nothing for the backend"), "{origin}");
    assert!(!folder.plans().exists());
}

#[test]
fn threads_share_a_folder() {
    let folder = Folder::new("threads");
    let plans = folder.plans();
    let expected: Vec<_> =
        (1..9).map(|scale| plan_beside_ggml(&gapped(scale), &best()).unwrap().plan.places()).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (plans, expected) = (&plans, &expected);
            scope.spawn(move || {
                for round in 0..48 {
                    let index = (round + thread) % expected.len();
                    let graph = gapped(index as u64 + 1);
                    if round % 16 == 7 {
                        let _ = fs::write(plans.join(graph.plan_file_name(&best())), "half of someth");
                    }
                    assert_eq!(solved(plans, &graph, &best()).0.places(), expected[index]);
                }
            });
        }
    });
    for scale in 1..9 {
        solved(&plans, &gapped(scale), &best());
        assert!(!solved(&plans, &gapped(scale), &best()).1);
    }
    assert_eq!(names(&plans).len(), 8);
}

#[test]
fn more_reuse_has_files_of_its_own_and_may_fall_back_to_ggmls() {
    let folder = Folder::new("more");
    let (plans, graph) = (folder.plans(), gapped(1));
    let more = best().with_reuse(Reuse::Extended);
    solved(&plans, &graph, &best());
    assert!(solved(&plans, &graph, &more).1 && !solved(&plans, &graph, &more).1);
    assert_eq!(names(&plans).len(), 2);
    let plan = plan_beside_ggml(&graph, &best()).unwrap().plan;
    assert_eq!(refusal(&plan, &more, &ggml_placement(&graph).unwrap()), None);
}
