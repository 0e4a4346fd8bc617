#include "spec/model/hf_rope.h"

#include "spec/text/text_input.h"

namespace lockstep {
namespace {

// What one of the two objects says. A rope type always means a statement about scaling, "default" that there is none.
struct Statement {
  std::optional<double> theta;
  std::optional<RopeScaling> scaling;
};

void require_whole_heads_turned(JsonFields& fields) {
  if (fields.number("partial_rotary_factor").value_or(1) != 1) {
    fields.refuse(fmt::format("field {} is not 1, and heads turned in part are not supported",
                              fields.name("partial_rotary_factor")),
                  "use a model whose whole heads are turned");
  }
}

std::string rope_type(JsonFields& rope) {
  const auto type = rope.word("rope_type");
  const auto old_name = rope.word("type");
  if (type && old_name && *type != *old_name) {
    rope.refuse(fmt::format("fields {} and {} contradict each other: {} and {}", rope.name("rope_type"),
                            rope.name("type"), quote_text(*type), quote_text(*old_name)),
                "keep the right one");
  }
  return type.value_or(old_name.value_or("default"));
}

double required_number(JsonFields& rope, std::string_view key) {
  const auto value = rope.number(key);
  if (!value) rope.refuse(fmt::format("field {} is missing", rope.name(key)), "rope type llama3 needs it");
  return *value;
}

Statement read_statement(JsonFields rope) {
  Statement said;
  said.theta = rope.number("rope_theta");
  require_whole_heads_turned(rope);
  const std::string type = rope_type(rope);
  if (type == "llama3") {
    said.scaling = RopeScaling{.factor = required_number(rope, "factor"),
                               .low_freq_factor = required_number(rope, "low_freq_factor"),
                               .high_freq_factor = required_number(rope, "high_freq_factor"),
                               .original_positions = rope.required_size("original_max_position_embeddings")};
  } else if (type != "default") {
    rope.refuse(fmt::format("field {} is {}, which is not supported", rope.name("rope_type"), quote_text(type)),
                "use a model with rope type 'default' or 'llama3'");
  }
  rope.finish({});
  return said;
}

}  // namespace

void read_hf_rope(JsonFields& fields, ModelSpec& spec) {
  require_whole_heads_turned(fields);
  std::optional<double> theta = fields.number("rope_theta");
  std::optional<Statement> chosen;
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    auto object = fields.object(key);
    if (!object) continue;
    const Statement said = read_statement(std::move(*object));
    if (chosen && chosen->scaling != said.scaling) {
      fields.refuse("fields 'rope_scaling' and 'rope_parameters' contradict each other", "keep the right one");
    }
    if (theta && said.theta && *theta != *said.theta) {
      fields.refuse(fmt::format("field 'rope_theta' is stated as {} and as {}", *theta, *said.theta),
                    "keep the right one");
    }
    chosen = said;
    if (said.theta) theta = said.theta;
  }
  if (chosen) spec.rope_scaling = chosen->scaling;
  if (theta) spec.rope_theta = *theta;
}

}  // namespace lockstep
