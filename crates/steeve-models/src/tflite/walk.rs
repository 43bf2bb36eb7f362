//! In which order kernels read an operand and write their result, and how far the two may overlap. O(rows + columns).
//!
//! A *walk* is the sequence of what a kernel reads and writes, by bytes from the start of the operand and of the result. Every
//! kernel here computes one element of the result after the other, in the order of memory: it reads what the element
//! needs, then writes it.
//!
//! The result may start `D` bytes below the operand if no byte is written while it is still to be read:
//!
//! ```text
//!   D = max over all writes w of (end of w - first byte of the operand that is read after w), and at least 0
//!
//!   result   |=============w|.............|
//!   operand        |xxxxxxx|r.............|      r: the first byte that is read after w
//!            '--D--'                             the end of w must not be above r
//! ```
//!
//! With one byte less, some write reaches a byte that is read after it: `D` can't be smaller.

/// The order in which a kernel reads one operand and writes its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Element by element, or row by row of a matrix: `rows` times, `reads` elements are read for each of `writes` elements.
    Rows(RowWalk),
    /// A window moves over an image.
    Window(WindowWalk),
    /// Elements are copied, with others between them that are not read.
    Pad(PadWalk),
}

/// What is read and what is written, in bytes from the start of the operand and of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkEvent {
    Read(std::ops::Range<i64>),
    Write(std::ops::Range<i64>),
}

/// `rows` times: for each of `writes` elements of the result, all `reads` elements of the operand's row are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowWalk {
    pub(crate) rows: i64,
    pub(crate) reads: i64,
    pub(crate) writes: i64,
    /// Bytes of an element of the operand, and of the result.
    pub(crate) elements: [i64; 2],
}

/// For each image, row, column and channel of the result: a window of the operand is read, in the channels of the group that the
/// channel belongs to, but for what is outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowWalk {
    pub(crate) images: i64,
    pub(crate) rows: Axis,
    pub(crate) columns: Axis,
    pub(crate) groups: i64,
    /// Channels of a group, in the operand and in the result.
    pub(crate) channels: [i64; 2],
    pub(crate) element: i64,
}

/// A window along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) filter: i64,
    pub(crate) stride: i64,
    pub(crate) dilation: i64,
    /// How far the first window starts before the image.
    pub(crate) pad: i64,
}

/// Dimensions of the operand, and how many elements are added before and behind it in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PadWalk {
    pub(crate) dims: Vec<PadDim>,
    pub(crate) element: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PadDim {
    pub(crate) size: i64,
    pub(crate) before: i64,
    pub(crate) behind: i64,
}

impl Walk {
    /// Returns how many bytes below the operand the result has to start. More is right as well.
    pub(crate) fn distance(&self) -> i64 {
        match self {
            Self::Rows(walk) => walk.distance(),
            Self::Window(walk) => walk.distance(),
            Self::Pad(walk) => walk.distance(),
        }
        .unwrap_or(0)
        .max(0)
    }

    /// Returns how many events [`run`](Self::run) has, or more.
    pub(crate) fn events(&self) -> i64 {
        let product = |factors: &[i64]| factors.iter().fold(1i64, |product, factor| product.saturating_mul(*factor));
        match self {
            Self::Rows(walk) => product(&[2, walk.rows, walk.writes]),
            Self::Window(WindowWalk { images, rows, columns, groups, channels, .. }) => {
                let window = product(&[rows.filter.min(rows.input), columns.filter.min(columns.input)]);
                product(&[*images, rows.output, columns.output, *groups, channels[1], window.saturating_add(1)])
            }
            Self::Pad(walk) => {
                let added = |dim: &PadDim| dim.before.saturating_add(dim.size).saturating_add(dim.behind);
                walk.dims.iter().fold(2, |product, dim| product.saturating_mul(added(dim)))
            }
        }
    }

    /// Calls `each` with everything that is read and written, in order.
    pub(crate) fn run(&self, each: &mut impl FnMut(WalkEvent)) {
        match self {
            Self::Rows(walk) => walk.run(each),
            Self::Window(walk) => walk.run(each),
            Self::Pad(walk) => walk.run(each),
        }
    }
}

impl RowWalk {
    fn distance(&self) -> Option<i64> {
        let [read, written] = [self.reads * self.elements[0], self.writes * self.elements[1]];
        // Within a row all of it is read until the last element is written; behind it, the next row is.
        let within =
            |row: i64| (self.writes > 1).then(|| row * (written - read) + (self.writes - 1) * self.elements[1]);
        let behind = |row: i64| (row + 1 < self.rows).then(|| (row + 1) * (written - read));
        // Both grow or shrink from row to row by the same bytes, so the first or the last row is the largest.
        let ends = [within(0), behind(0), within(self.rows - 1), behind(self.rows - 2)];
        if self.rows < 2 { ends[0] } else { ends.into_iter().flatten().max() }
    }

    fn run(&self, each: &mut impl FnMut(WalkEvent)) {
        let [read, written] = self.elements;
        for row in 0..self.rows {
            for element in 0..self.writes {
                each(WalkEvent::Read(row * self.reads * read..(row + 1) * self.reads * read));
                let at = (row * self.writes + element) * written;
                each(WalkEvent::Write(at..at + written));
            }
        }
    }
}

impl Axis {
    /// Returns the first position of the image that is in the window at `output`; `None` if no position is.
    fn first(&self, output: i64) -> Option<i64> {
        let origin = output * self.stride - self.pad;
        let skipped = if origin < 0 { (-origin + self.dilation - 1) / self.dilation } else { 0 };
        let position = origin + skipped * self.dilation;
        (skipped < self.filter && position < self.input).then_some(position)
    }

    /// Returns all positions of the image that are in the window at `output`. A window may be much larger than its image.
    fn positions(&self, output: i64) -> impl Iterator<Item = i64> + use<> {
        let (dilation, input) = (self.dilation, self.input);
        let end = output * self.stride - self.pad + self.filter * dilation;
        let first = self.first(output);
        std::iter::successors(first, move |it| Some(it + dilation)).take_while(move |it| *it < end.min(input))
    }

    /// Returns, for each position of the result and one more, the first position of the image that is in its window or a
    /// later one.
    fn first_from(&self) -> Vec<Option<i64>> {
        let mut firsts = vec![None; usize::try_from(self.output).unwrap_or(0) + 1];
        for output in (0..firsts.len() - 1).rev() {
            let here = self.first(i64::try_from(output).unwrap_or(i64::MAX));
            firsts[output] = [here, firsts[output + 1]].into_iter().flatten().min();
        }
        firsts
    }
}

impl WindowWalk {
    /// Channels of the operand and of the result.
    fn depths(&self) -> [i64; 2] {
        self.channels.map(|channels| channels * self.groups)
    }

    fn distance(&self) -> Option<i64> {
        let [deep, depth] = self.depths();
        let image = self.image_distance();
        let (read, written) =
            (self.rows.input * self.columns.input * deep, self.rows.output * self.columns.output * depth);
        // Behind the last element of an image, the next image is read.
        let first = self.rows.first_from()[0].zip(self.columns.first_from()[0]);
        let first = first.map(|(row, column)| (row * self.columns.input + column) * deep);
        let behind =
            |image: i64| (image + 1 < self.images).then(|| Some((image + 1) * (written - read) - first?)).flatten();
        let within = |number: i64| image.map(|image| image + number * (written - read));
        let last = self.images - 1;
        let ends = [within(0), behind(0), within(last), behind(last - 1).filter(|_| last > 0)];
        ends.into_iter().flatten().max().map(|elements| elements * self.element)
    }

    /// Returns the distance in elements, for the first image alone.
    fn image_distance(&self) -> Option<i64> {
        let [deep, depth] = self.depths();
        let width = self.columns.output * depth;
        let (row_firsts, column_firsts) = (self.rows.first_from(), self.columns.first_from());
        let column = self.column_distance(&column_firsts);
        let mut most = None;
        for row in 0..self.rows.output {
            let start = self.rows.first(row).map(|first| first * self.columns.input * deep);
            // In this row, what its own windows still read.
            let own = start.zip(column).map(|(start, column)| row * width - start + column);
            // Behind it, what those of later rows read.
            let later = row_firsts[usize::try_from(row + 1).unwrap_or(0)].zip(column_firsts[0]);
            let later = later.map(|(next, column)| (row + 1) * width - (next * self.columns.input + column) * deep);
            most = most.max(own).max(later);
        }
        most
    }

    /// Returns the distance in elements along one row, if both the image's row and the result's start at 0.
    fn column_distance(&self, firsts: &[Option<i64>]) -> Option<i64> {
        let [deep, depth] = self.depths();
        let [read, written] = self.channels;
        // In the same window: behind an element of a group, its channels are read again; behind the last, those of the next group.
        let again = |group: i64| (written > 1).then(|| group * (written - read) + written - 1);
        let next = |group: i64| (group + 1 < self.groups).then(|| (group + 1) * (written - read));
        let last = self.groups - 1;
        let ends = [again(0), next(0), again(last), next(last - 1).filter(|_| last > 0)];
        let same = ends.into_iter().flatten().max();
        let mut most = None;
        for column in 0..self.columns.output {
            let here = self.columns.first(column).zip(same).map(|(first, same)| column * depth + same - first * deep);
            let later =
                firsts[usize::try_from(column + 1).unwrap_or(0)].map(|first| (column + 1) * depth - first * deep);
            most = most.max(here).max(later);
        }
        most
    }

    fn run(&self, each: &mut impl FnMut(WalkEvent)) {
        let [read, _] = self.channels;
        let mut written = 0;
        for image in 0..self.images {
            for row in 0..self.rows.output {
                for column in 0..self.columns.output {
                    for group in 0..self.groups {
                        for _ in 0..self.channels[1] {
                            self.read_window(image, row, column, group * read, each);
                            each(WalkEvent::Write(written..written + self.element));
                            written += self.element;
                        }
                    }
                }
            }
        }
    }

    fn read_window(&self, image: i64, row: i64, column: i64, channel: i64, each: &mut impl FnMut(WalkEvent)) {
        let deep = self.depths()[0];
        for y in self.rows.positions(row) {
            for x in self.columns.positions(column) {
                let at = ((image * self.rows.input + y) * self.columns.input + x) * deep + channel;
                each(WalkEvent::Read(at * self.element..(at + self.channels[0]) * self.element));
            }
        }
    }
}

impl PadWalk {
    /// The last element that is read has the most added ones before it: `D` is the bytes of these.
    fn distance(&self) -> Option<i64> {
        let (mut position, mut index) = (0, 0);
        for dim in &self.dims {
            position = position * (dim.before + dim.size + dim.behind) + dim.before + dim.size - 1;
            index = index * dim.size + dim.size - 1;
        }
        self.dims.iter().all(|dim| dim.size > 0).then_some((position - index) * self.element)
    }

    fn run(&self, each: &mut impl FnMut(WalkEvent)) {
        let total: i64 = self.dims.iter().map(|dim| dim.before + dim.size + dim.behind).product();
        let mut read = 0;
        for position in 0..total {
            if self.is_copied(position) {
                each(WalkEvent::Read(read..read + self.element));
                read += self.element;
            }
            each(WalkEvent::Write(position * self.element..(position + 1) * self.element));
        }
    }

    fn is_copied(&self, mut position: i64) -> bool {
        self.dims.iter().rev().all(|dim| {
            let size = dim.before + dim.size + dim.behind;
            let here = position % size;
            position /= size;
            (dim.before..dim.before + dim.size).contains(&here)
        })
    }
}

#[cfg(test)]
mod tests {
    use steeve_graph::fuzz::Choices;

    use super::*;

    /// `D` by its definition, over every write and every later read.
    fn by_definition(walk: &Walk) -> i64 {
        let mut events = Vec::new();
        walk.run(&mut |event| events.push(event));
        let (mut first, mut most) = (None::<i64>, 0);
        for event in events.into_iter().rev() {
            match event {
                WalkEvent::Read(range) => first = Some(first.map_or(range.start, |first| first.min(range.start))),
                WalkEvent::Write(range) => most = most.max(first.map_or(0, |first| range.end - first)),
            }
        }
        most
    }

    /// Whether a byte is read after it was overwritten, if the result starts `distance` bytes below the operand.
    pub(crate) fn does_harm(walk: &Walk, distance: i64) -> bool {
        let (mut written, mut harm) = (std::collections::BTreeSet::new(), false);
        walk.run(&mut |event| match event {
            WalkEvent::Read(range) => harm |= range.clone().any(|byte| written.contains(&(byte + distance))),
            WalkEvent::Write(range) => written.extend(range),
        });
        harm
    }

    fn axis(choices: &mut Choices<'_>) -> Axis {
        let mut number = |most: usize| i64::try_from(choices.below(most)).unwrap();
        let (input, filter, stride, dilation) = (number(7) + 1, number(4) + 1, number(5) + 1, number(3) + 1);
        Axis { input, output: number(6) + 1, filter, stride, dilation, pad: number(5) }
    }

    fn random(choices: &mut Choices<'_>) -> Walk {
        match choices.below(4) {
            0 => {
                let mut number = |most: usize| i64::try_from(choices.below(most)).unwrap() + 1;
                let elements = [number(4), number(4)];
                Walk::Rows(RowWalk { rows: number(6), reads: number(4), writes: number(4), elements })
            }
            1 => {
                let mut number = |most: usize| i64::try_from(choices.below(most)).unwrap();
                let mut dim = || PadDim { size: number(3) + 1, before: number(3), behind: number(3) };
                Walk::Pad(PadWalk { dims: vec![dim(), dim(), dim()], element: number(4) + 1 })
            }
            _ => {
                let (rows, columns) = (axis(choices), axis(choices));
                let mut number = |most: usize| i64::try_from(choices.below(most)).unwrap() + 1;
                let channels = [number(3), number(3)];
                Walk::Window(WindowWalk {
                    images: number(3),
                    rows,
                    columns,
                    groups: number(3),
                    channels,
                    element: number(2),
                })
            }
        }
    }

    fn inputs() -> u64 {
        std::env::var("STEEVE_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(3000)
    }

    #[test]
    fn the_distance_is_the_smallest_that_does_no_harm() {
        for seed in 0..inputs() {
            let walk = random(&mut Choices::from_seed(seed));
            let distance = walk.distance();
            assert_eq!(distance, by_definition(&walk), "seed {seed}: {walk:?}");
            let mut events = 0;
            walk.run(&mut |_| events += 1);
            assert!(events <= walk.events(), "seed {seed}: {walk:?}");
            assert!(!does_harm(&walk, distance) && !does_harm(&walk, distance + 3), "seed {seed}: {walk:?}");
            assert!(distance == 0 || does_harm(&walk, distance - 1), "seed {seed}: {walk:?}");
        }
    }

    #[test]
    fn a_kernel_that_runs_backwards_is_noticed() {
        let axis = Axis { input: 3, output: 3, filter: 1, stride: 1, dilation: 1, pad: 0 };
        let walk = WindowWalk { images: 1, rows: axis, columns: axis, groups: 1, channels: [2, 4], element: 1 };
        let mut events = Vec::new();
        walk.run(&mut |event| events.push(event));
        // Element by element from the last one; within an element, reads still come before the write.
        let elements: Vec<_> = events.chunks(2).rev().flatten().collect();
        let distance = Walk::Window(walk).distance();
        let (mut written, mut harm) = (std::collections::BTreeSet::new(), false);
        for event in elements {
            match event {
                WalkEvent::Read(range) => harm |= range.clone().any(|byte| written.contains(&(byte + distance))),
                WalkEvent::Write(range) => written.extend(range.clone()),
            }
        }
        assert!(harm);
    }

    #[test]
    fn a_pointwise_convolution_needs_the_pixels_that_it_adds() {
        let axis = Axis { input: 4, output: 4, filter: 1, stride: 1, dilation: 1, pad: 0 };
        let walk = WindowWalk { images: 1, rows: axis, columns: axis, groups: 1, channels: [8, 16], element: 1 };
        // 15 pixels of 8 channels more than were read, and all but one channel of the last pixel.
        assert_eq!(Walk::Window(walk).distance(), 15 * 8 + 15);
    }
}
