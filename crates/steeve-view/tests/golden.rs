//! Compares pictures with the golden files in `tests/golden`. `STEEVE_UPDATE=1 cargo test -p steeve-view --test golden` updates them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use steeve_graph::{AssignedGraph, GraphStrategy, PlanOptions, Reuse, plan_graph};
use steeve_plan::{Bytes, Strategy, csv, plan};
use steeve_view::{
    Colouring, HeaderStyle, PageStyle, Picture, PlanMap, SvgStyle, TerminalStyle, Theme, header, page, svg, terminal,
};

/// A layer of a language model, in miniature.
const LAYER: &str = "\
memory gpu align=128
memory host align=32
tokens = input i32[8] @host
mask = input f32[8,8] @gpu
embd = input f32[32,8] @gpu
wq = external f32[32,32]
wk = external f32[32,32]
w_up = external f32[32,96]
w_gate = external f32[32,96]
w_down = external f32[96,32]
norm-0 = rms_norm embd @gpu
Qcur-0 = mul_mat wq norm-0 @gpu
Kcur-0 = mul_mat wk norm-0 @gpu
kq-0 = mul_mat Kcur-0 Qcur-0 @gpu
kq_soft_max-0 = soft_max kq-0 mask @gpu
attn_out-0 = add Qcur-0 embd @gpu
ffn_up-0 = mul_mat w_up attn_out-0 @gpu
ffn_gate-0 = mul_mat w_gate attn_out-0 @gpu
ffn_swiglu-0 = swiglu ffn_gate-0 ffn_up-0 @gpu
ffn_out-0 = mul_mat w_down ffn_swiglu-0 @gpu
l_out-0 = add ffn_out-0 attn_out-0 !output @gpu
shifted = neg tokens !output @host
";

fn of_graph(strategy: GraphStrategy, name: &str) -> PlanMap {
    let graph: AssignedGraph = LAYER.parse().unwrap();
    let reuse = if strategy == GraphStrategy::Ggml { Reuse::Ggml } else { Reuse::Extended };
    PlanMap::of_graph(name, &plan_graph(&graph, &PlanOptions::new(strategy).with_reuse(reuse)).unwrap())
}

fn graph() -> Picture {
    Picture::of("layer.graph", of_graph(GraphStrategy::Fast, "steeve"))
}

fn compared() -> Picture {
    Picture::of_two("layer.graph", of_graph(GraphStrategy::Ggml, "ggml"), of_graph(GraphStrategy::Fast, "steeve"))
}

/// Creates blocks of many sizes and lifetimes.
fn many(count: u64, limit: Option<Bytes>) -> Picture {
    let mut rows = String::from("id,lower,upper,size\n");
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for block in 0..count {
        let size = 1 << random(14);
        rows += &format!("b{block},{},{},{}\n", block / 3, block / 3 + 1 + random(9), size + random(size));
    }
    let table = csv::read(&rows).unwrap();
    let problem = table.problem().unwrap();
    let problem = if let Some(limit) = limit { problem.with_max_buffer(limit) } else { problem };
    Picture::of("many.csv", PlanMap::of_blocks("fast", "memory", &plan(problem, &Strategy::Fast).unwrap(), table.ids()))
}

#[track_caller]
fn golden(name: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("STEEVE_UPDATE").is_some() {
        fs::write(&file, made).unwrap();
        return;
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let different = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    assert!(kept == made, "{name} is not up to date from line {different:?} on: STEEVE_UPDATE=1 makes it anew");
}

#[test]
fn drawings_are_what_they_were() {
    golden("graph.svg", &svg(&graph(), &SvgStyle::default()));
    golden("compared.svg", &svg(&compared(), &SvgStyle::default().with_theme(Theme::Light).with_width(800)));
    let style = SvgStyle::default().with_rectangles(200).with_theme(Theme::Dark).with_colouring(Colouring::Size);
    let mut small = SvgStyle::default().with_width(320).with_theme(Theme::Light);
    small.height = 60;
    let mut picture = compared().only("gpu");
    picture.title = "a title that is longer than a drawing of this size has room for".to_owned();
    golden("small.svg", &svg(&picture, &small));
    golden("merged.svg", &svg(&many(2000, None), &style));
}

#[test]
fn headers_are_what_they_were() {
    golden("graph.h", &header(&of_graph(GraphStrategy::Fast, "steeve"), &HeaderStyle::of_file("layer.graph")));
    let limited = many(12, Some(Bytes(4096)));
    golden("buffers.h", &header(&limited.maps[0], &HeaderStyle::named("many.csv", "my app")));
}

#[test]
fn maps_for_terminals_are_what_they_were() {
    golden("graph.txt", &terminal(&graph(), &TerminalStyle::plain(72).with_height(12)));
    golden("compared.txt", &terminal(&compared(), &TerminalStyle::plain(100).with_height(10)));
    golden("colours.txt", &terminal(&graph(), &TerminalStyle::colour(72).with_height(8)));
    let by = TerminalStyle::plain(60).with_height(6).with_colouring(Colouring::Operation);
    golden("operations.txt", &terminal(&graph().only("gpu"), &by));
    golden("buffers.txt", &terminal(&many(60, Some(Bytes(20_000))), &TerminalStyle::plain(80).with_height(12)));
}

#[test]
fn no_line_is_longer_than_the_terminal() {
    for width in [0, 1, 24, 30, 40, 41, 79, 200] {
        for picture in [graph(), compared(), many(50, None)] {
            let drawn = terminal(&picture, &TerminalStyle::plain(width));
            let longest = drawn.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width.max(24), "{width}: {longest}\n{drawn}");
        }
    }
}

#[test]
fn a_drawing_keeps_to_its_number_of_rectangles() {
    let picture = many(5000, None);
    for limit in [16, 100, 1000, 4999, 5000, 6000] {
        let drawn = svg(&picture, &SvgStyle::default().with_rectangles(limit));
        let paths = drawn.lines().filter(|line| line.starts_with("<path class=\"c"));
        let count: usize = paths.map(|line| line.matches('M').count()).sum();
        assert!(count <= limit.min(5000), "{count} of {limit}");
        assert_eq!(drawn.contains("small blocks are merged into"), limit < 5000, "{limit}");
        if limit >= 5000 {
            assert_eq!(count, 5000);
        }
    }
}

#[test]
fn names_mean_nothing_but_themselves() {
    let nasty = "</script><script>alert(1)</script>&\"'\u{1}";
    let rows = format!("id,lower,upper,size\n\"{}\",0,1,64\n", nasty.replace('"', "\"\""));
    let table = csv::read(&rows).unwrap();
    let made = plan(table.problem().unwrap(), &Strategy::Fast).unwrap();
    let picture = Picture::of(nasty, PlanMap::of_blocks(nasty, nasty, &made, table.ids()));
    let page = page(&picture, &PageStyle::default());
    assert_eq!(page.matches("</script>").count(), 2, "the data's and the script's own");
    assert!(page.contains("<title>&lt;/script&gt;&lt;script&gt;alert(1)"), "the title is text");
    let drawn = svg(&picture, &SvgStyle::default());
    assert!(!drawn.contains("<script") && !drawn.contains('\u{1}'));
    assert!(header(&picture.maps[0], &HeaderStyle::of_file(nasty)).is_ascii());
}

#[test]
fn a_page_needs_nothing_from_outside() {
    let page = page(&compared(), &PageStyle::default());
    for word in ["http:", "https:", "src=", "@import", "fetch(", "XMLHttpRequest", "WebSocket"] {
        let used = page.match_indices(word).filter(|(at, _)| !page[*at..].starts_with("http://www.w3.org/2000/svg"));
        assert_eq!(used.count(), 0, "{word}");
    }
    assert_eq!(page, steeve_view::page(&compared(), &PageStyle::default()), "the same to the byte");
}

#[test]
fn nothing_can_be_drawn_too() {
    let picture = Picture::of("nothing", PlanMap::new("plan", Vec::new()));
    assert!(page(&picture, &PageStyle::default()).contains("\"maps\":[{"));
    assert!(svg(&picture, &SvgStyle::default()).ends_with("</svg>\n"));
    assert_eq!(terminal(&picture, &TerminalStyle::plain(80)), "\n");
    assert!(header(&picture.maps[0], &HeaderStyle::of_file("nothing")).contains("#ifndef NOTHING_H"));
}

#[test]
fn steps_can_be_cut_out() {
    use steeve_plan::Step;
    let whole = compared();
    let part = compared().between(Step(3), Step(6));
    let tiles = |picture: &Picture| picture.maps[1].memories[0].tiles.len();
    assert!(0 < tiles(&part) && tiles(&part) < tiles(&whole));
    let all: Vec<_> = whole.maps.iter().flat_map(|map| &map.memories).flat_map(|memory| &memory.tiles).collect();
    let mut longer = 0;
    for tile in part.maps.iter().flat_map(|map| &map.memories).flat_map(|memory| &memory.tiles) {
        assert!(tile.life.start() < Step(6) && Step(3) < tile.life.end());
        assert!(all.iter().any(|it| (&it.name, it.life) == (&tile.name, tile.life)), "{} has its own life", tile.name);
        longer += u32::from(tile.life.start() < Step(3) || Step(6) < tile.life.end());
    }
    assert!(longer > 0);
    // What is drawn ends where the steps do.
    let drawn = terminal(&part, &TerminalStyle::plain(60));
    assert!(drawn.contains("node 2") && drawn.contains("node 4") && !drawn.contains("before the run"), "{drawn}");
    assert!(drawn.contains("of which these nodes use"), "{drawn}");
    let drawn = svg(&part, &SvgStyle::default());
    let right = f64::from(SvgStyle::default().width);
    for path in drawn.lines().filter(|line| line.starts_with("<path class=\"c")) {
        let corner = |it: &str| it.split(' ').next().and_then(|x| x.parse::<f64>().ok());
        let wide =
            |it: &str| it.split('h').nth(1).and_then(|x| x.split('v').next()).and_then(|x| x.parse::<f64>().ok());
        for it in path.split('M').skip(1) {
            assert!(corner(it).unwrap() >= 0.0 && corner(it).unwrap() + wide(it).unwrap() <= right, "{it}");
        }
    }
    assert_eq!(part.maps[0].peak(), whole.maps[0].peak(), "the buffers are what they are");
}

/// Pictures of claims that no plan would make: overlaps, buffers that are not there, numbers at the end of their range.
#[test]
fn whatever_is_claimed_can_be_drawn() {
    use steeve_plan::{Lifetime, Offset};
    use steeve_view::{MemoryMap, Tile};
    let mut state = 3u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for round in 0..200 {
        let extreme = [0, 1, 7, 4096, 1 << 40, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let mut number = |small: u64| match random(6) {
            0 => extreme[random(8) as usize],
            _ => random(small),
        };
        let mut memories = Vec::new();
        for memory in 0..round % 3 {
            let tiles = (0..number(40).min(40)).map(|tile| {
                let start = number(50);
                let life =
                    Lifetime::new(start.min(u64::MAX - 1), start.saturating_add(number(20)).saturating_add(1)).unwrap();
                let mut tile = Tile::new(format!("t{}", tile % 7), life, Offset(number(5000)), Bytes(number(900)));
                tile.buffer = number(3).min(5) as usize;
                tile.follows = Some(number(9).min(60) as usize);
                tile
            });
            let tiles: Vec<Tile> = tiles.collect();
            let buffers = (0..number(3).min(4)).map(|_| Bytes(number(9000))).collect();
            memories.push(MemoryMap::new(format!("m{memory}"), buffers, tiles));
        }
        let maps = [PlanMap::new("one", memories.clone()), PlanMap::new("two", memories.into_iter().rev().collect())];
        let [one, two] = maps;
        for picture in [Picture::of("claims", one.clone()), Picture::of_two("claims", one, two)] {
            let drawn = svg(&picture, &SvgStyle::default().with_rectangles(32));
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
            assert!(page(&picture, &PageStyle::default()).ends_with("</html>\n"));
            let style = TerminalStyle::plain(50).with_height(5);
            assert!(terminal(&picture, &style).lines().all(|line| line.chars().count() <= 50));
            terminal(&picture, &TerminalStyle::colour(60));
            header(&picture.maps[0], &HeaderStyle::of_file("claims.json"));
        }
    }
}

#[test]
fn an_axis_begins_before_the_run_where_the_first_step_is_there() {
    let drawn = terminal(&graph().only("gpu"), &TerminalStyle::plain(72));
    let axis = drawn.lines().find(|line| line.contains("node 11")).unwrap();
    assert!(axis.trim().starts_with("before the run"), "{axis}");
    let drawn = svg(&graph().only("gpu"), &SvgStyle::default());
    assert!(drawn.contains(">before the run</text>") && !drawn.contains(">node 0</text>"), "{drawn}");
}

#[test]
fn a_page_knows_the_steps_of_each_plan_and_what_it_is_opened_with() {
    let table = csv::read("id,lower,upper,size\na,0,3,4096\n").unwrap();
    let list =
        PlanMap::of_blocks("list", "memory", &plan(table.problem().unwrap(), &Strategy::Fast).unwrap(), table.ids());
    let picture = Picture::of_two("two", of_graph(GraphStrategy::Fast, "steeve"), list);
    let made = page(&picture, &PageStyle::default().with_colouring(Colouring::Size).with_theme(Theme::Dark));
    assert!(made.contains("\"name\":\"steeve\",\"unit\":\"node\""));
    assert!(made.contains("\"name\":\"list\",\"unit\":\"step\""));
    assert!(made.contains("\"by\":\"size\"") && made.contains("<html lang=\"en\" data-theme=\"dark\">"));
}

#[test]
fn names_do_nothing_to_a_terminal() {
    use steeve_plan::{Lifetime, Offset};
    use steeve_view::{MemoryMap, Tile};
    let tile = |name: &str| Tile::new(name, Lifetime::new(0, 1).unwrap(), Offset(0), Bytes(8));
    let tiles = vec![tile("evil\u{1b}[31m\r"), tile(&"long".repeat(200))];
    let picture = Picture::of("a\u{1b}c", PlanMap::new("plan", vec![MemoryMap::new("m\u{7}", vec![Bytes(16)], tiles)]));
    let drawn = terminal(&picture, &TerminalStyle::plain(60).with_colouring(Colouring::Name));
    assert!(!drawn.contains(|letter: char| letter.is_control() && letter != '\n'), "{drawn:?}");
    assert!(drawn.lines().all(|line| line.chars().count() <= 60), "{drawn}");
    assert!(drawn.contains("evil\\u{1b}[#m\\r (1)"), "{drawn}");
    let drawn = svg(&Picture::of("\u{fffe}\u{ffff}", picture.maps[0].clone()), &SvgStyle::default());
    assert!(!drawn.contains(['\u{fffe}', '\u{ffff}']));
}

#[test]
fn a_small_drawing_keeps_its_labels_apart() {
    let mut style = SvgStyle::default().with_width(320);
    style.height = 60;
    let mut picture = compared().only("gpu");
    picture.title = "long ".repeat(40);
    let drawn = svg(&picture, &style);
    assert!(drawn.contains("…</text>"), "{drawn}");
    // The line above a map and the labels within it.
    let number = |line: &str, name: &str| -> f64 {
        let rest = line.split_once(&format!(" {name}=\"")).unwrap().1;
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let top = number(drawn.lines().find(|line| line.starts_with("<rect class=\"plot\"")).unwrap(), "y");
    let cards = drawn.lines().filter(|line| line.starts_with("<rect class=\"card\""));
    assert!(cards.clone().count() > 0 && cards.clone().all(|card| number(card, "y") >= top), "{drawn}");
    let axis: Vec<&str> = drawn.lines().filter(|line| line.contains(">node ") || line.contains(">before")).collect();
    assert_eq!(axis.len(), 2, "one end of each map: {axis:?}");
}

#[test]
fn kinds_in_a_drawing_are_told_apart_by_patterns_too() {
    let drawn = svg(&graph().only("gpu"), &SvgStyle::default());
    let used: std::collections::BTreeSet<&str> =
        drawn.split("url(#").skip(1).map(|it| it.split(')').next().unwrap()).collect();
    assert!(used.len() > 2, "{drawn}");
    for pattern in used {
        assert_eq!(drawn.matches(&format!("<pattern id=\"{pattern}\"")).count(), 1, "{pattern}");
        assert!(drawn.contains(&format!("<rect fill=\"url(#{pattern})\"")), "{pattern} is in the legend");
    }
    assert!(!svg(&Picture::of("nothing", PlanMap::new("plan", Vec::new())), &SvgStyle::default()).contains("<defs>"));
}
