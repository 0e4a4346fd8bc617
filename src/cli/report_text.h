// A report as people read it: the same lines in the terminal and on the page.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "telemetry/report.h"

namespace lockstep {

struct ReportSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;  // what, and what of it
};

std::vector<ReportSection> report_sections(const Report& report);
std::string report_text(const Report& report);
// One file without anything from elsewhere: the sections, and curves and bars as SVG. All text is escaped.
std::string report_html(const Report& report, const RunRecords& run);

}  // namespace lockstep
