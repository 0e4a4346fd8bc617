// Lines over one axis with round marks, linear or logarithmic: step time over nodes, goodput over the save interval.
//
// Each series has a colour, a line or dots or both, and a name in the legend; a dot shows its values when it is pointed
// at. Vertical reference lines mark values of x by name. Names are written as given, whatever characters they have.
//
// What is drawn is finite, and above 0 on a logarithmic axis: the caller leaves out what is not, and begins another
// series of the same name where a line has a gap. Anything else is a ProgramError, as is a plot without a point.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pictures/plot_axis.h"

namespace lockstep {

struct LinePlot {
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;  // in the order in which they are joined
    bool line = true;
    bool dots = false;
    bool dashed = false;
  };
  struct Reference {
    double x;
    std::string name;
  };
  std::string title = {}, subtitle = {};
  PlotAxis x = {}, y = {};
  std::vector<Series> series = {};  // of one name: one colour and one entry in the legend
  std::vector<Reference> references = {};
};

std::string svg_picture(const LinePlot& plot);
// One below the other on one page. The titles of those after the first are captions.
std::string svg_panels(const std::vector<LinePlot>& plots);

}  // namespace lockstep
