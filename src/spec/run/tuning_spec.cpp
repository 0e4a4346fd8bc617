#include "spec/run/tuning_spec.h"

#include <fmt/format.h>

#include "spec/model/presets.h"
#include "spec/text/toml_fields.h"

namespace lockstep {

namespace {

constexpr std::size_t kTuningTextLimit = 1 << 20;  // a table of several models' forms
constexpr std::string_view kArrow = " -> ";

}  // namespace

TuningSpec read_tuning(const TomlTable& table) {
  constexpr std::string_view kKeys[] = {"gpu", "library", "products"};
  table.refuse_unknown(kKeys);
  TuningSpec tuning;
  table("gpu", tuning.gpu);
  table("library", tuning.library);
  std::vector<std::string> products;
  table("products", products);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::size_t arrow = products[i].find(kArrow);
    if (arrow == std::string::npos)
      table.refuse("products", fmt::format("product {} is not \"FORM -> ALGORITHM\"", i + 1), "remove the table");
    if (!tuning.products.emplace(products[i].substr(0, arrow), products[i].substr(arrow + kArrow.size())).second)
      table.refuse("products", fmt::format("product {} has the form of one before it", i + 1), "keep one of the two");
  }
  return tuning;
}

void write_tuning(const TuningSpec& tuning, TomlWriter& writer) {
  if (tuning == TuningSpec{}) return;
  writer.table("tuning");
  writer("gpu", tuning.gpu);
  writer("library", tuning.library);
  std::vector<std::string> products;
  for (const auto& [form, algorithm] : tuning.products) products.push_back(form + std::string(kArrow) + algorithm);
  writer("products", products);
}

TuningSpec parse_tuning_toml(std::string_view text, const std::string& where) {
  const TomlDocument document(text, where, kTuningTextLimit);
  return read_tuning(document.top().table("tuning"));
}

std::string to_toml(const TuningSpec& tuning) {
  TomlWriter writer;
  write_tuning(tuning, writer);
  std::string text = std::move(writer).text();
  for (std::size_t at = 0; (at = text.find("\", \"", at)) != std::string::npos; at += 4)
    text.replace(at, 4, "\",\n  \"");
  return text;
}

TuningSpec built_in_tuning(const std::string& gpu, const std::string& library) {
  for (const EmbeddedText& file : embedded_tunings()) {
    TuningSpec tuning = parse_tuning_toml(file.text, "tuning " + std::string(file.name));
    if (tuning.gpu == gpu && tuning.library == library) return tuning;
  }
  return {};
}

}  // namespace lockstep
