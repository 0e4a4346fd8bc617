#include "support/diagnosis.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {

Diagnosis diagnosis_of(const std::filesystem::path& run) {
  const Outcome outcome = run_program({"doctor", run.string(), "--json"});
  Diagnosis diagnosis{.code = outcome.code, .text = outcome.out + outcome.err, .names = {}, .first = ""};
  const auto report = nlohmann::json::parse(outcome.out, nullptr, false);
  if (!report.is_object()) return diagnosis;
  for (const auto& finding : report["findings"]) {
    if (diagnosis.names.empty()) {
      diagnosis.first = finding["summary"].get<std::string>() + "\n";
      for (const char* list : {"evidence", "remedies"})
        for (const auto& line : finding[list]) diagnosis.first += line.get<std::string>() + "\n";
    }
    diagnosis.names.push_back(finding["name"]);
  }
  return diagnosis;
}

std::vector<std::string> undisturbed() {
  return ::geteuid() == 0 ? std::vector<std::string>{"nice", "-n", "-20"} : std::vector<std::string>{};
}

}  // namespace lockstep::tests
