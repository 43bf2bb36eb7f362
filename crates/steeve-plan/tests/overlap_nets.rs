//! How often blocks that overlap are placed at the lower bound, on networks for microcontrollers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_plan::fuzz::{self, ByteDice};
use steeve_plan::{Align, Best, Block, BlockId, Budget, Bytes, Id, Lifetime, Problem, Strategy, lower_bound, place};

/// An image: height (and width), channels.
#[derive(Clone, Copy, Debug)]
struct Image {
    side: u64,
    channels: u64,
}

impl Image {
    fn bytes(self) -> u64 {
        self.side * self.side * self.channels
    }
}

/// A network in the making: each operator runs at a step, and its source dies there unless it is kept.
struct Network {
    blocks: Vec<Block>,
    last: usize,
    image: Image,
}

impl Network {
    fn new(image: Image) -> Self {
        Self { blocks: vec![block(image.bytes(), 0)], last: 0, image }
    }

    fn step(&self) -> u64 {
        self.blocks[self.last].life.start().0 + 1
    }

    fn keep_until(&mut self, index: usize, step: u64) {
        let life = self.blocks[index].life;
        self.blocks[index].life = Lifetime::new(life.start(), life.end().0.max(step + 1)).unwrap();
    }

    /// Adds an operator over the last image, which dies there. `distance` is what its kernel needs.
    fn push(&mut self, image: Image, distance: Option<u64>) {
        let step = self.step();
        self.keep_until(self.last, step);
        let mut new = block(image.bytes(), step);
        let source = BlockId::from_index(self.last).unwrap();
        if let Some(distance) = distance {
            new = new.overlapping(source, Bytes(distance));
        }
        self.last = self.blocks.len();
        self.blocks.push(new);
        self.image = image;
    }

    /// A convolution of single pixels: pixel `p` of the result is written when pixel `p` of the source was read.
    fn pointwise(&mut self, channels: u64) {
        let (from, to) = (self.image, Image { channels, ..self.image });
        let pixels = from.side * from.side;
        let distance =
            if channels > from.channels { pixels * channels - (pixels - 1) * from.channels } else { channels };
        self.push(to, Some(distance));
    }

    /// A convolution of 3 x 3 pixels of each channel: a row of the result needs the row before it.
    fn depthwise(&mut self, stride: u64) {
        let from = self.image;
        let to = Image { side: from.side.div_ceil(stride), ..from };
        let distance = if stride == 1 { (from.side + 2) * from.channels } else { 2 * from.channels };
        self.push(to, Some(distance));
    }

    /// Adds an earlier image to the last one. It is kept until then, and the last one dies.
    fn add(&mut self, earlier: usize) {
        self.keep_until(earlier, self.step());
        self.push(self.image, Some(0));
    }

    /// Adds an earlier image to the last one in place.
    fn add_in_place(&mut self, earlier: usize) {
        let step = self.step();
        self.keep_until(earlier, step);
        let new = block(self.image.bytes(), step).following(BlockId::from_index(self.last).unwrap());
        self.last = self.blocks.len();
        self.blocks.push(new);
    }

    /// Joins the last image with earlier ones to a larger one.
    fn concat(&mut self, earlier: &[usize], image: Image) {
        for index in earlier {
            self.keep_until(*index, self.step());
        }
        self.push(image, None);
    }

    fn problem(self) -> Problem {
        Problem::new(self.blocks).unwrap()
    }
}

fn block(bytes: u64, start: u64) -> Block {
    Block::new(Bytes(bytes), Lifetime::new(start, start + 1).unwrap()).aligned(Align::new(16).unwrap())
}

/// MobileNet v1 of some width and resolution.
fn mobilenet_v1(dice: &mut ByteDice<'_>) -> Problem {
    let width = 2 + 2 * dice.roll(15);
    let side = [32, 48, 64, 96, 96, 128, 160, 192, 224][dice.roll(9) as usize];
    let mut net = Network::new(Image { side, channels: 1 + 2 * dice.roll(2) });
    let first = Image { side: side / 2, channels: 4 * width };
    net.push(first, dice.once_in(2).then(|| first.bytes().saturating_sub(net.image.bytes()) + 3 * side));
    for (stride, channels) in [
        (1, 8),
        (2, 16),
        (1, 16),
        (2, 32),
        (1, 32),
        (2, 64),
        (1, 64),
        (1, 64),
        (1, 64),
        (1, 64),
        (1, 64),
        (2, 128),
        (1, 128),
    ] {
        net.depthwise(stride);
        net.pointwise(channels * width);
    }
    net.push(Image { side: 1, channels: 128 * width }, None);
    net.push(Image { side: 1, channels: 2 + dice.roll(200) * 5 }, None);
    net.problem()
}

/// MobileNet v2 of some width and resolution: inverted residuals.
fn mobilenet_v2(dice: &mut ByteDice<'_>) -> Problem {
    let (width, in_place) = (1 + dice.roll(8), dice.once_in(2));
    let side = [32, 48, 64, 96, 96, 128, 160, 192, 224][dice.roll(9) as usize];
    let mut net = Network::new(Image { side, channels: 3 });
    let first = Image { side: side / 2, channels: 4 * width };
    net.push(first, dice.once_in(2).then(|| first.bytes().saturating_sub(net.image.bytes()) + 3 * side));
    for (expand, channels, repeats, stride) in
        [(1, 2, 1, 1), (6, 3, 2, 2), (6, 4, 3, 2), (6, 8, 4, 2), (6, 12, 3, 1), (6, 20, 3, 2), (6, 40, 1, 1)]
    {
        for repeat in 0..repeats {
            let (earlier, stride) = (net.last, if repeat == 0 { stride } else { 1 });
            let same = repeat > 0;
            if expand > 1 {
                let wide = net.image.channels * expand;
                if same {
                    // The source is read again by the addition, so it does not die.
                    net.push(Image { channels: wide, ..net.image }, None);
                } else {
                    net.pointwise(wide);
                }
            }
            net.depthwise(stride);
            net.pointwise(channels * width);
            match same {
                true if in_place => net.add_in_place(earlier),
                true => net.add(earlier),
                false => {}
            }
        }
    }
    net.push(Image { side: 1, channels: 160 * width }, None);
    net.problem()
}

/// A chain of operators of any sizes and distances.
fn chain(dice: &mut ByteDice<'_>) -> Problem {
    let count = 30 + dice.roll(190);
    let mut net = Network::new(Image { side: 1, channels: 1 + 40 * dice.roll(250) });
    let (spread, rarity) = (1 + dice.roll(12), 3 + dice.roll(20));
    for _ in 0..count {
        let bytes = 16 * (1 + dice.roll(250)) * (1u64 << dice.roll(spread));
        let grows = bytes.saturating_sub(net.image.bytes());
        let distance = grows + bytes * dice.roll(30) / 100;
        let alone = dice.once_in(rarity);
        net.push(Image { side: 1, channels: bytes }, (!alone).then_some(distance));
    }
    net.problem()
}

/// A chain with earlier images added here and there.
fn branches(dice: &mut ByteDice<'_>) -> Problem {
    let count = 30 + dice.roll(150);
    let mut net = Network::new(Image { side: 1, channels: 1 + 40 * dice.roll(250) });
    let mut open: Option<(usize, u64)> = None;
    for _ in 0..count {
        let bytes = 16 * (1 + dice.roll(250)) * (1u64 << dice.roll(4));
        let grows = bytes.saturating_sub(net.image.bytes());
        let kept = open.is_some_and(|(earlier, _)| earlier == net.last);
        let distance = (!kept).then_some(grows + bytes * dice.roll(20) / 100);
        net.push(Image { side: 1, channels: bytes }, distance);
        match open {
            None if dice.once_in(4) => open = Some((net.last, 2 + dice.roll(4))),
            Some((earlier, 0)) => {
                net.add(earlier);
                open = None;
            }
            Some((earlier, left)) => open = Some((earlier, left - 1)),
            None => {}
        }
    }
    net.problem()
}

/// A network that halves its image again and again, and joins what it kept on the way back.
fn unet(dice: &mut ByteDice<'_>) -> Problem {
    let (side, depth) = ([64, 96, 128, 160][dice.roll(4) as usize], 2 + dice.roll(3));
    let mut width = 4 + 2 * dice.roll(7);
    let mut net = Network::new(Image { side, channels: 3 });
    let mut kept = Vec::new();
    for _ in 0..depth {
        net.pointwise(width);
        for _ in 0..1 + dice.roll(2) {
            net.depthwise(1);
            net.pointwise(width);
        }
        kept.push((net.last, net.image));
        // The pooling's source is read again later, so it does not die.
        net.push(Image { side: net.image.side / 2, channels: width }, None);
        width *= 2;
    }
    net.depthwise(1);
    net.pointwise(width);
    while let Some((earlier, image)) = kept.pop() {
        width /= 2;
        let larger = Image { side: image.side, channels: width };
        net.push(larger, Some(larger.bytes()));
        net.concat(&[earlier], Image { side: image.side, channels: 2 * width });
        net.depthwise(1);
        net.pointwise(width);
    }
    net.problem()
}

/// Modules of several branches over one image, which are joined.
fn inception(dice: &mut ByteDice<'_>) -> Problem {
    let side = [16, 24, 32, 48][dice.roll(4) as usize];
    let mut net = Network::new(Image { side, channels: 3 });
    net.pointwise(16 + 8 * dice.roll(6));
    for _ in 0..3 + dice.roll(6) {
        let (source, image) = (net.last, net.image);
        let (mut ends, mut channels) = (Vec::new(), 0);
        for branch in 0..2 + dice.roll(3) {
            net.image = image;
            let step = net.step();
            net.keep_until(source, step);
            let narrow = Image { channels: 4 + 4 * dice.roll(8), ..image };
            net.last = net.blocks.len();
            net.blocks.push(block(narrow.bytes(), step));
            net.image = narrow;
            for _ in 0..branch.min(2) {
                net.depthwise(1);
                net.pointwise(narrow.channels + 4 * dice.roll(5));
            }
            ends.push(net.last);
            channels += net.image.channels;
        }
        net.concat(&ends, Image { channels, ..image });
    }
    net.problem()
}

/// Finds the lowest peak of a chain in which every block meets only the one before and the one after: only the lowest and
/// the highest start of a block within a capacity matter.
fn lowest_peak_of_chain(problem: &Problem) -> u64 {
    let blocks = problem.blocks().as_slice();
    let bytes = |block: &Block| block.occupied().unwrap().0;
    let fits = |capacity: u64| {
        let up = |offset: u64| offset.next_multiple_of(16);
        let top = |block: &Block| capacity.checked_sub(bytes(block)).map(|it| it / 16 * 16);
        let Some(mut high) = top(&blocks[0]) else { return false };
        let mut low = 0;
        for pair in blocks.windows(2) {
            let (source, result) = (&pair[0], &pair[1]);
            let distance = result.overlaps.map_or(bytes(result), |it| it.distance.0.min(bytes(result)));
            let (Some(most), distance) = (top(result), up(distance)) else { return false };
            let below = high.checked_sub(distance).map(|it| it.min(most));
            let above = (low + bytes(source) <= most).then_some(low + bytes(source));
            (low, high) = match (below, above) {
                (Some(_), Some(_)) => (0, most),
                (Some(below), None) => (0, below),
                (None, Some(above)) => (above, most),
                (None, None) => return false,
            };
        }
        true
    };
    let (mut low, mut high) = (lower_bound(problem).bytes.0, 1u64 << 40);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

struct Tally {
    cases: u32,
    at_bound: u32,
    searched_to_bound: u32,
    at_optimum: u32,
    searched_to_optimum: u32,
    optima: u32,
    worst: f64,
    gain: f64,
}

fn measure(
    name: &str,
    cases: u64,
    build: fn(&mut ByteDice<'_>) -> Problem,
    lowest: Option<fn(&Problem) -> u64>,
) -> Tally {
    let mut tally = Tally {
        cases: 0,
        at_bound: 0,
        searched_to_bound: 0,
        at_optimum: 0,
        searched_to_optimum: 0,
        optima: 0,
        worst: 1.0,
        gain: 0.0,
    };
    let (mut fast_time, mut best_time, mut blocks) = (std::time::Duration::ZERO, std::time::Duration::ZERO, 0);
    for seed in 0..cases {
        let noise = fuzz::pseudo_random_bytes(seed * 31 + 5, 2000);
        let problem = build(&mut ByteDice::new(&noise));
        let bound = lower_bound(&problem).bytes.0;
        let start = std::time::Instant::now();
        let fast = place(&problem, &Strategy::Fast).unwrap();
        fast_time += start.elapsed();
        let start = std::time::Instant::now();
        let best = place(&problem, &Strategy::Best(Best::new(Budget::Nodes(300_000)))).unwrap();
        best_time += start.elapsed();
        blocks += problem.blocks().len();
        tally.cases += 1;
        tally.at_bound += u32::from(fast.peak.0 == bound);
        tally.searched_to_bound += u32::from(best.peak.0 == bound);
        tally.worst = tally.worst.max(fast.peak.0 as f64 / bound as f64);
        if let Some(lowest) = lowest {
            let optimum = lowest(&problem);
            assert!(bound <= optimum && optimum <= best.peak.0, "{name} {seed}: {bound} {optimum} {}", best.peak.0);
            tally.optima += u32::from(optimum == bound);
            tally.at_optimum += u32::from(fast.peak.0 == optimum);
            tally.searched_to_optimum += u32::from(best.peak.0 == optimum);
        }
        let apart = place(&fuzz::without_overlaps(&problem), &Strategy::Fast).unwrap();
        tally.gain += 1.0 - fast.peak.0 as f64 / apart.peak.0 as f64;
    }
    println!(
        "{name}: {} of {} at the bound, {} after a search; worst {:.4} of the bound; {:.1}% smaller on average; {:.3} ms, {:.1} ms; {} blocks",
        tally.at_bound,
        tally.cases,
        tally.searched_to_bound,
        tally.worst,
        100.0 * tally.gain / cases as f64,
        fast_time.as_secs_f64() * 1e3 / cases as f64,
        best_time.as_secs_f64() * 1e3 / cases as f64,
        blocks / cases as usize,
    );
    if lowest.is_some() {
        println!(
            "  {} of {} have their optimum at the bound; {} are at the optimum",
            tally.optima, tally.cases, tally.at_optimum
        );
    }
    tally
}

#[test]
fn every_mobilenet_is_placed_at_its_bound() {
    let first = measure("mobilenet v1", 200, mobilenet_v1, Some(lowest_peak_of_chain));
    let second = measure("mobilenet v2", 200, mobilenet_v2, None);
    assert_eq!((first.at_bound, second.at_bound), (200, 200));
    assert_eq!(first.at_optimum, 200);
}

#[test]
fn every_chain_is_placed_at_its_optimum() {
    let tally = measure("chains", 300, chain, Some(lowest_peak_of_chain));
    assert_eq!(tally.at_optimum, 300);
}

#[test]
fn networks_with_branches_are_nearly_always_placed_at_their_bound() {
    for (name, build) in
        [("branches", branches as fn(&mut ByteDice<'_>) -> Problem), ("unet", unet), ("inception", inception)]
    {
        let tally = measure(name, 300, build, None);
        assert!(tally.at_bound >= 290 && tally.worst < 1.05, "{name}");
    }
}
