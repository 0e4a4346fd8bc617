#include "pictures/ring_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "pictures/svg_page.h"
#include "spec/layout/context_split.h"

namespace lockstep {

namespace {

constexpr double kSegment = 24, kPanelGap = 36;

std::string_view fill_of(std::int64_t rank) {
  return fills::kinds[rank % static_cast<std::int64_t>(std::size(fills::kinds))];
}

ContextSplit split_of(std::int64_t ranks, bool zigzag) {
  return {.rank = 0, .ring = ranks, .heads = 1, .zigzag = zigzag};
}

// The segments of a rank, in the order of the sample: a sample of one token a segment says where they begin.
std::vector<std::int64_t> segments_of(std::int64_t rank, std::int64_t ranks, bool zigzag) {
  const ContextSplit split = split_of(ranks, zigzag);
  std::vector<std::int64_t> all;
  for (std::int64_t c = 0; c < split.segments(); ++c)
    all.push_back(split.segment_begins(ranks * split.segments(), rank, c));
  return all;
}

std::int64_t owner(std::int64_t segment, std::int64_t ranks, bool zigzag) {
  for (std::int64_t r = 0; r < ranks; ++r)
    if (std::ranges::count(segments_of(r, ranks, zigzag), segment) > 0) return r;
  return -1;
}

// Whose keys and values a rank has at a turn: they go to the next rank, and come from the one before.
std::int64_t at_hand(std::int64_t rank, std::int64_t turn, std::int64_t ranks) { return (rank - turn + ranks) % ranks; }

void draw_sample(SvgPage& page, std::int64_t ranks, double width) {
  const std::int64_t segments = 2 * ranks;
  page.y += 28;
  page.text(SvgPage::kMargin, page.y, "ink bold", "a sample's tokens, in zig-zag order");
  page.text(SvgPage::kMargin + 260, page.y, "soft",
            fmt::format("rank r has segments r and {} − r: one from the front, its mirror image from the back",
                        segments - 1));
  page.y += 8;
  const double each = width / static_cast<double>(segments);
  for (std::int64_t s = 0; s < segments; ++s) {
    const std::int64_t rank = owner(s, ranks, true);
    page.cell({SvgPage::kMargin + static_cast<double>(s) * each, page.y, each, 24}, fill_of(rank),
              fmt::format("{}: rank {}", s, rank));
  }
  page.y += 24;
}

// The mask of all segments; what is attended to in this turn has the colour of the rank that does it.
void draw_turn(SvgPage& page, std::int64_t turn, std::int64_t ranks, double left, double top) {
  const std::int64_t segments = 2 * ranks;
  const double size = static_cast<double>(segments) * kSegment;
  page.text(left, top - 22, "ink bold", fmt::format("turn {}", turn));
  page.text(left + 50, top - 22, "soft",
            turn == 0 ? "own keys and values" : fmt::format("those of {} rank{} before", turn, turn > 1 ? "s" : ""));
  for (std::int64_t k = 0; k < segments; ++k)
    page.text(left + (static_cast<double>(k) + 0.5) * kSegment, top - 5, "soft small mid", fmt::format("{}", k));
  page.rect({left, top, size, size}, "rest");
  for (std::int64_t q = 0; q < segments; ++q) {
    const std::int64_t rank = owner(q, ranks, true);
    const double y = top + static_cast<double>(q) * kSegment;
    page.text(left - 5, y + kSegment / 2 + 4, "soft small end", fmt::format("{}", q));
    for (std::int64_t past = 0; past <= turn; ++past)
      for (const std::int64_t k : segments_of(at_hand(rank, past, ranks), ranks, true)) {
        const double x = left + static_cast<double>(k) * kSegment;
        const std::string fill = lighter(fill_of(rank), past < turn ? 0.65 : 0);
        const std::string_view style = past < turn ? "step past" : "step now";
        if (k < q) page.rect({x, y, kSegment, kSegment}, style, fill);
        if (k < q && past == turn) page.text(x + kSegment / 2, y + kSegment / 2 + 4, "in", fmt::format("{}", rank));
        if (k == q)
          page.polygon(fmt::format("{:g},{:g} {:g},{:g} {:g},{:g}", x, y, x, y + kSegment, x + kSegment, y + kSegment),
                       style, fill);
      }
  }
  page.reach(left + size, top + size);
}

std::string in_turns(const std::vector<std::vector<double>>& work, std::size_t rank) {
  std::string out;
  for (const auto& turn : work) out += fmt::format("{}{:g}", out.empty() ? "" : ", ", turn[rank]);
  return out;
}

// What the order is for: who does how much in each turn.
void draw_work(SvgPage& page, std::int64_t ranks, double left) {
  for (const bool zigzag : {true, false}) {
    const auto work = ring_work(ranks, zigzag);
    double longest = 0;
    for (const auto& turn : work) longest += *std::ranges::max_element(turn);
    const double segment = zigzag ? 1 : 4;  // a plain segment is twice as long: four of the small squares
    page.text(left, page.y, "ink bold", zigzag ? "squares per turn, zig-zag" : "in plain order");
    page.text(left, page.y + 18, "soft", fmt::format("the slowest of each turn, summed: {:g}", longest * segment));
    for (std::int64_t r = 0; r < ranks; ++r) {
      auto scaled = work;
      for (auto& turn : scaled)
        for (double& w : turn) w *= segment;
      const double y = page.y + 26 + 20 * static_cast<double>(r);
      page.rect({left, y, 14, 14}, "step", fill_of(r));
      page.text(left + 22, y + 11, "ink", fmt::format("rank {}: {}", r, in_turns(scaled, static_cast<std::size_t>(r))));
    }
    left += 280;
  }
}

}  // namespace

std::vector<std::vector<double>> ring_work(std::int64_t ranks, bool zigzag) {
  std::vector<std::vector<double>> work;
  for (std::int64_t turn = 0; turn < ranks; ++turn) {
    auto& now = work.emplace_back();
    for (std::int64_t r = 0; r < ranks; ++r) {
      double sum = 0;
      for (const std::int64_t q : segments_of(r, ranks, zigzag))
        for (const std::int64_t k : segments_of(at_hand(r, turn, ranks), ranks, zigzag))
          sum += k < q ? 1 : k == q ? 0.5 : 0;
      now.push_back(sum);
    }
  }
  return work;
}

std::string ring_picture(std::int64_t ranks) {
  SvgPage page;
  const double mask = static_cast<double>(2 * ranks) * kSegment, panel = mask + kPanelGap;
  const std::int64_t across = std::min<std::int64_t>(ranks, 4);
  const double width = std::max(static_cast<double>(across) * panel - kPanelGap + 16, 700.0);
  page.longest = width;
  page.title(fmt::format("Ring attention over {} ranks", ranks));
  page.subtitle(
      "Each rank keeps its queries. Keys and values travel round the ring, one rank further each turn, while those at "
      "hand are attended to.");
  draw_sample(page, ranks, width);
  // The ring itself.
  page.y += 34;
  const double each = width / static_cast<double>(ranks);
  for (std::int64_t r = 0; r < ranks; ++r) {
    const double x = SvgPage::kMargin + static_cast<double>(r) * each;
    page.cell({x, page.y - 14, each * 0.55, 24}, fill_of(r), fmt::format("rank {}", r));
    if (r + 1 < ranks) {
      page.arrow(x + each * 0.57, page.y - 2, x + each * 0.98, page.y - 2);
      page.text(x + each * 0.775, page.y - 8, "soft small mid", "K, V");
    }
  }
  const double first = SvgPage::kMargin + each * 0.275,
               last = SvgPage::kMargin + (static_cast<double>(ranks) - 1 + 0.275) * each;
  page.line(last, page.y + 10, last, page.y + 22, "wire");
  page.line(last, page.y + 22, first, page.y + 22, "wire");
  page.arrow(first, page.y + 22, first, page.y + 11);
  page.text((first + last) / 2, page.y + 18, "soft small mid", "K, V");
  page.y += 78;
  for (std::int64_t turn = 0; turn < ranks; ++turn) {
    const std::int64_t row = turn / across, column = turn % across;
    draw_turn(page, turn, ranks, SvgPage::kMargin + 16 + static_cast<double>(column) * panel,
              page.y + static_cast<double>(row) * (mask + 58));
  }
  page.y += static_cast<double>((ranks + across - 1) / across) * (mask + 58) - 20;
  page.text(SvgPage::kMargin, page.y, "soft",
            "Rows are segments of queries, columns segments of keys; the number is the rank that attends; pale: done "
            "before.");
  page.y += 30;
  draw_work(page, ranks, SvgPage::kMargin);
  page.reach(0, page.y + 26 + 20 * static_cast<double>(ranks));
  return page.str();
}

namespace {

constexpr double kToken = 15, kHead = 34;

// Rows are tokens, columns heads; each cell has the colour of the rank that holds it.
template <class Owner>
void draw_grid(SvgPage& page, double left, double top, std::int64_t tokens, std::int64_t heads, const Owner& rank_of) {
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t rank = rank_of(t, h);
      page.cell({left + static_cast<double>(h) * kHead, top + static_cast<double>(t) * kToken, kHead, kToken},
                fill_of(rank), fmt::format("{}", rank), fmt::format("token {}, head {}: rank {}", t, h, rank));
    }
  for (std::int64_t h = 0; h < heads; ++h)
    page.text(left + (static_cast<double>(h) + 0.5) * kHead, top - 6, "soft small mid", fmt::format("h{}", h));
}

}  // namespace

std::string ulysses_picture(std::int64_t ranks, std::int64_t heads) {
  const ContextSplit split{.rank = 0, .ring = 1, .heads = ranks};
  const std::int64_t tokens = 4 * ranks, own = split.tokens(tokens);
  SvgPage page;
  const double width = static_cast<double>(heads) * kHead, middle = 150, top_gap = 64;
  page.longest = 2 * width + middle;
  page.title(fmt::format("Ulysses over {} ranks: tokens × heads of one sample", ranks));
  page.subtitle(
      "Before attention an all-to-all changes some tokens with all heads into all tokens with some heads; after it "
      "another one changes them back. Attention itself is whole on each rank.");
  const double top = page.y + top_gap, left = SvgPage::kMargin + 76, right = left + width + middle;
  page.text(left, top - 26, "ink bold", fmt::format("each rank: {} tokens, all heads", own));
  page.text(right, top - 26, "ink bold", fmt::format("each rank: all tokens, {} heads", heads / ranks));
  draw_grid(page, left, top, tokens, heads, [&](std::int64_t t, std::int64_t) { return t / own; });
  draw_grid(page, right, top, tokens, heads, [&](std::int64_t, std::int64_t h) { return h / (heads / ranks); });
  for (std::int64_t t = 0; t < tokens; t += own)
    page.text(left - 6, top + (static_cast<double>(t) + static_cast<double>(own) / 2) * kToken + 4, "soft small end",
              fmt::format("tokens {}–{}", t, t + own - 1));
  const double half = top + static_cast<double>(tokens) * kToken / 2;
  page.arrow(left + width + 14, half - 22, right - 14, half - 22);
  page.text(left + width + middle / 2, half - 30, "ink mid", "all-to-all");
  page.text(left + width + middle / 2, half - 6, "soft mid", "Q, K, V there");
  page.arrow(right - 14, half + 26, left + width + 14, half + 26);
  page.text(left + width + middle / 2, half + 18, "ink mid", "all-to-all");
  page.text(left + width + middle / 2, half + 44, "soft mid", "output back");
  page.y = top + static_cast<double>(tokens) * kToken + 8;
  page.begin_keys(left);
  for (std::int64_t r = 0; r < ranks; ++r) page.key(fill_of(r), fmt::format("rank {}", r));
  return page.str();
}

}  // namespace lockstep
