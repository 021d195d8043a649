//! The pictures of the demo: four kinds of pattern in changing sizes and colours.

/// Width and height, in pixels.
const SIDE: u8 = 64;

/// One picture with what is known about it.
pub(super) struct Picture {
    /// Its number, from 0.
    pub(super) index: i64,
    /// Its class.
    pub(super) label: &'static str,
    /// `<label>-<index>.png`.
    pub(super) file_name: String,
    /// Mean of all colour values, from 0 (black) to 1 (white), rounded to three decimals.
    pub(super) brightness: f64,
    /// The encoded picture.
    pub(super) png: Vec<u8>,
}

type Pattern = fn(u32, u32, u32) -> u32;

/// Each pattern gives 0 to 255 for a size, a column and a row.
const CLASSES: [(&str, Pattern); 4] = [
    ("stripes", |size, x, y| (x + y) / size % 2 * 255),
    ("discs", |size, x, y| {
        let (dx, dy) = (x.abs_diff(32), y.abs_diff(32));
        let ring = (dx * dx + dy * dy) / (size * size * 4);
        (1 - ring % 2) * 255
    }),
    ("checker", |size, x, y| (x / size + y / size) % 2 * 255),
    ("gradient", |size, x, y| (x * size + y * (16 - size)) / 4),
];

impl Picture {
    /// Draws picture number `index`.
    pub(super) fn draw(index: u32) -> Result<Self, png::EncodingError> {
        let class = usize::try_from(index % 4).unwrap_or(0);
        let (label, pattern) = CLASSES.get(class).copied().unwrap_or(("", |_, _, _| 0));
        let size = 3 + index / 4 % 8;
        let colour = [40 + index * 3, 255 - index * 2, 90 + index * 71 % 160];
        let mut pixels = Vec::with_capacity(usize::from(SIDE) * usize::from(SIDE) * 3);
        for y in 0..u32::from(SIDE) {
            for x in 0..u32::from(SIDE) {
                let level = pattern(size, x, y).min(255);
                pixels.extend(colour.map(|part| {
                    let value = (level * part + (255 - level) * 24) / 255;
                    u8::try_from(value).unwrap_or(u8::MAX)
                }));
            }
        }
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, SIDE.into(), SIDE.into());
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&pixels)?;
        Ok(Self {
            index: index.into(),
            label,
            file_name: format!("{label}-{index:02}.png"),
            brightness: brightness(&pixels),
            png,
        })
    }
}

fn brightness(pixels: &[u8]) -> f64 {
    let sum: u32 = pixels.iter().map(|&value| u32::from(value)).sum();
    let full = 255.0 * f64::from(SIDE) * f64::from(SIDE) * 3.0;
    (f64::from(sum) / full * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_decode_and_differ() {
        let mut seen = std::collections::HashSet::new();
        for index in 0..64 {
            let picture = Picture::draw(index).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(&picture.png))
                .read_info()
                .unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut pixels).unwrap();
            assert_eq!(picture.brightness, brightness(&pixels));
            assert!((0.05..0.95).contains(&picture.brightness), "{index}");
            assert!(seen.insert(pixels), "{index}");
            assert_eq!(picture.png, Picture::draw(index).unwrap().png);
        }
    }
}
