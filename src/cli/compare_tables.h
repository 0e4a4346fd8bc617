// The tables of `compare`: what each layout held, sent and took.
#pragma once
#include <string>
#include <vector>

#include "cli/compare_view.h"
#include "cli/text_table.h"

namespace lockstep {

// Short: nine columns of bytes share a line.
std::string_view short_head_of(Tag tag);

// The unit in which all figures of a table are given: the largest in which the largest of them has two digits.
struct ByteUnit {
  explicit ByteUnit(std::int64_t largest);
  std::string text(double bytes) const;  // empty for none

  std::string name;
  double size = 1;
  int decimals = 2;
};

using ShownLayouts = std::vector<const ComparedLayout*>;

// A layout's name without what all of them share and the header says: the number of ranks, and the dp that the other
// axes leave.
class LayoutNames {
 public:
  // `shortens`: a name that would make the table wider than a terminal becomes a number, explained below it.
  LayoutNames(const Comparison& comparison, bool scaling, bool shortens);
  bool ranks_differ() const { return names_ranks_; }
  bool micro_differs() const { return names_micro_; }
  std::string of(const LayoutSpec& layout) const;
  std::string legend() const;  // of the numbers, one per line

 private:
  static constexpr std::size_t kLongestName = 34;
  std::string whole(LayoutSpec layout) const;
  bool scaling_, names_ranks_, names_micro_, names_uneven_, names_reduce_;
  std::vector<std::string> long_names_;
};

// Memory, messages by operation and by axis, and times.
// `repeats`: times with what each layout differs from itself.
std::vector<TextTable> cost_tables(const ShownLayouts& all, const LayoutNames& names, bool repeats);
// Losses, bytes and messages alone, whatever the number of ranks.
TextTable brief_table(const ShownLayouts& all, const LayoutNames& names);
TextTable scaling_table(const Comparison& comparison, const CompareAsked& asked, const LayoutNames& names);

}  // namespace lockstep
