#include "pictures/tensor_parallel_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "pictures/svg_page.h"
#include "spec/layout/tensor_split.h"

namespace lockstep {

namespace {

constexpr double kUnit = 11;  // pixels of an element

std::string_view fill_of(std::int64_t rank) {
  return fills::kinds[static_cast<std::size_t>(rank) % std::size(fills::kinds)];
}

// A matrix, rows × columns, of which this rank holds the part [first, first + count) of its rows or columns.
struct Held {
  std::int64_t rows, columns;
  Part row_part, column_part;
};
Held whole(std::int64_t rows, std::int64_t columns) { return {rows, columns, Part::whole(rows), Part::whole(columns)}; }

class Drawing {
 public:
  Drawing(const TensorParallelSizes& sizes, SvgPage& page) : s_(sizes), page_(page) {}

  void panel(bool sequence) {
    page_.caption(sequence ? "with sequence parallelism (sp = on)" : "without sequence parallelism (sp = off)");
    page_.subtitle(sequence
                       ? "between products each rank holds some tokens: they are gathered before the first product "
                         "and summed and scattered after the second"
                       : "between products each rank holds all tokens, all ranks the same; partial sums are added "
                         "by an all-reduce");
    page_.y += 34;
    const double top = page_.y, row = tallest() + 32;
    for (std::int64_t r = 0; r < s_.ranks; ++r) rank_row(r, sequence, top + static_cast<double>(r) * row);
    page_.y = top + static_cast<double>(s_.ranks) * row - 16;
  }

 private:
  double tallest() const { return static_cast<double>(std::max(s_.tokens, s_.ffn_width)) * kUnit; }
  double matrix(double x, double centre, const Held& held, std::string_view fill, const std::string& name) {
    const double w = static_cast<double>(held.columns) * kUnit, h = static_cast<double>(held.rows) * kUnit;
    const double y = centre - h / 2;
    page_.rect({x, y, w, h}, "rest");
    page_.rect(
        {x + static_cast<double>(held.column_part.first) * kUnit, y + static_cast<double>(held.row_part.first) * kUnit,
         static_cast<double>(held.column_part.count) * kUnit, static_cast<double>(held.row_part.count) * kUnit},
        "step held", fill,
        fmt::format("rows {} to {}, columns {} to {}", held.row_part.first,
                    held.row_part.first + held.row_part.count - 1, held.column_part.first,
                    held.column_part.first + held.column_part.count - 1));
    page_.rect({x, y, w, h}, "frame");
    page_.text(x + w / 2, y - 6, "ink mid", name);
    return x + w;
  }
  double sign(double x, double centre, std::string_view what) {
    page_.text(x + 13, centre + 4, "ink mid", what);
    return x + 26;
  }
  double exchange(double x, double centre, std::string_view what) {
    page_.text(x + 52, centre - 7, "ink mid small", what);
    page_.arrow(x + 8, centre, x + 96, centre);
    return x + 104;
  }

  void rank_row(std::int64_t r, bool sequence, double top) {
    const TensorSplit split{.rank = r, .size = s_.ranks, .sequence = sequence};
    const Part ffn = split.part(s_.ffn_width);
    const auto own = split.piece(s_.tokens, 0);
    const Part tokens = sequence ? Part{s_.tokens, own.mine, own.own_count, own.own_count} : Part::whole(s_.tokens);
    const std::string_view mine = fill_of(r), same = fills::grey;
    const double centre = top + tallest() / 2;
    const Held x_here{s_.tokens, s_.width, tokens, Part::whole(s_.width)};
    page_.text(SvgPage::kMargin, centre + 4, "ink bold", fmt::format("rank {}", r));
    double x = SvgPage::kMargin + 66;
    x = matrix(x, centre, x_here, sequence ? mine : same, "x");
    if (sequence) {
      x = exchange(x, centre, "all-gather");
      x = matrix(x, centre, whole(s_.tokens, s_.width), same, "x");
    }
    x = sign(x, centre, "×");
    x = matrix(x, centre, {s_.width, s_.ffn_width, Part::whole(s_.width), ffn}, mine, "up (columns)");
    x = sign(x, centre, "=");
    x = matrix(x, centre, {s_.tokens, s_.ffn_width, Part::whole(s_.tokens), ffn}, mine, "h");
    x = sign(x, centre, "×");
    x = matrix(x, centre, {s_.ffn_width, s_.width, ffn, Part::whole(s_.width)}, mine, "down (rows)");
    x = sign(x, centre, "=");
    x = matrix(x, centre, whole(s_.tokens, s_.width), lighter(mine, 0.55), "partial sum");
    x = exchange(x + 8, centre, sequence ? "reduce-scatter" : "all-reduce");
    matrix(x, centre, x_here, sequence ? mine : same, "y");
  }

  const TensorParallelSizes& s_;
  SvgPage& page_;
};

}  // namespace

std::string tensor_parallel_picture(const TensorParallelSizes& sizes) {
  SvgPage page;
  page.longest = 940;
  page.title(fmt::format("Tensor parallelism over {} ranks: the two products of a feed-forward part", sizes.ranks));
  page.subtitle(
      "The first matrix is split by columns and the second by rows, so what is between them stays on its rank. "
      "Attention is split the same way: query, key and value by heads, the output projection by rows.");
  Drawing drawing(sizes, page);
  drawing.panel(false);
  drawing.panel(true);
  page.begin_keys(SvgPage::kMargin);
  for (std::int64_t r = 0; r < sizes.ranks; ++r) page.key(fill_of(r), fmt::format("rank {} alone has it", r));
  page.key(fills::grey, "all ranks have the same");
  page.remark("lighter: to be summed over the ranks");
  return page.str();
}

}  // namespace lockstep
