// Rows of stacked bars on one scale: where the time of each rank went, which memory it took.
#pragma once
#include <string>
#include <vector>

namespace lockstep {

struct BarsPicture {
  struct Row {
    std::string name;
    std::vector<double> values;     // by kind, not negative
    std::vector<std::string> tips;  // by kind
  };
  std::string title;
  std::vector<std::string> kinds;
  std::vector<Row> rows;
};

std::string svg_picture(const BarsPicture& picture);

}  // namespace lockstep
