// Curves over one axis: losses and speeds over the steps of a run.
//
// A curve of many points is drawn by the least and the greatest value of each pixel's width, so no spike is lost and a
// million points make a small file. Values that are not finite leave a gap.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct CurvePicture {
  struct Curve {
    std::string name;
    std::vector<std::pair<double, double>> points;  // by x, which does not fall
  };
  std::string title, x_name;
  std::vector<Curve> curves;
};

std::string svg_picture(const CurvePicture& picture);

// Round numbers that a scale from `low` to `high` is marked at: multiples of 1, 2 or 5 times a power of ten, at most
// `most` of them.
std::vector<double> scale_marks(double low, double high, int most);

}  // namespace lockstep
