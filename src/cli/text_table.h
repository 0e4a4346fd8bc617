// A table of text and numbers: for a terminal, with columns of equal width, or as markdown.
#pragma once
#include <string>
#include <vector>

namespace lockstep {

struct TextTable {
  std::string title;
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> rows;  // the first cell is to the left, the others to the right

  // Takes out the columns that are empty in every row.
  void drop_empty_columns();
  std::string plain() const;
  std::string markdown() const;
};

}  // namespace lockstep
