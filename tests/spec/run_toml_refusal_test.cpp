// What a run's TOML may not say, and in which words it is refused.
#include "run_toml_cases.h"
#include "support/run_results.h"

namespace lockstep {
namespace {

TEST(RunToml, AMisspeltNameComesWithTheNearest) {
  const Bad cases[] = {
      {"trian", "steps = 3", {"run.toml:5: unknown table 'trian'", "'train'"}},
      {"memory", "recompute = \"all\"", {"'recompute'", "one of \"none\", \"elementwise\", \"projections\", \"full\""}},
      {"memory", "recompute_blocks = 2", {"'recompute_blocks' does nothing without recompute"}},
      {"memory", "recompute_every = 2", {"'recompute_every' does nothing without recompute"}},
      {"memory",
       "recompute = \"elementwise\"\nrecompute_stages = \"1+1\"",
       {"'recompute_stages' does nothing without recompute = \"projections\" or \"full\"; remove it"}},
      {"memory", "recompute = \"full\"\nrecompute_every = 0", {"'recompute_every'", "a whole number from 1"}},
      {"memory", "recompute = \"full\"\nrecompute_stages = \"1+x\"", {"recompute_stages = '1+x'", "as in \"4+2+0\""}},
      {"memory",
       "recompute = \"full\"\nrecompute_stages = \"1+1\"\nrecompute_blocks = 2",
       {"'recompute_blocks' is of the model and 'recompute_stages' of each of its stages; keep one of the two"}},
      {"memory",
       "recompute = \"full\"\nrecompute_stages = \"2+1\"",
       {"recompute_stages = \"2+1\" is of 2 stages, and pp is 1; use recompute_blocks"}},
      {"memory", "offload_blocks = 2", {"'offload_blocks' does nothing without offload_activations; remove it"}},
      {"memory", "offload_activations = \"disk\"\noffload_blocks = -1", {"'offload_blocks'", "a whole number from 0"}},
      {"memory",
       "offload_folder = \"/fast\"",
       {"'offload_folder' does nothing without something that is offloaded to a disk; remove it"}},
      {"run", "clock = \"off\"\nclock_error = 1e-3", {"'clock_error' does nothing with clock = \"off\""}},
      {"run", "clock = \"utc\"", {"'clock'", "one of \"global\", \"local\", \"off\""}},
      {"run", "clock_error = 0", {"'clock_error'", "at least"}},
      {"model", "layer = 3", {"run.toml:2: unknown key 'layer' in [model]", "'layers'"}},
      {"data", "sequence = 3", {"run.toml:4: unknown key 'sequence' in [data]", "'seq'"}},
      {"data", "synthetic.sed = 3", {"unknown key 'sed' in [data.synthetic]", "'seed'"}},
      {"train", "step = 3", {"run.toml:6: unknown key 'step' in [train]", "'steps'"}},
      {"optim", "beta = 3", {"unknown key 'beta' in [optim]", "'betas'"}},
      {"layout", "mirco = 3", {"unknown key 'mirco' in [layout]", "'micro'"}},
      {"precision", "computer = 3", {"unknown key 'computer' in [precision]", "'compute'"}},
      {"run", "thread = 3", {"unknown key 'thread' in [run]", "'threads'"}},
  };
  expect_refused(cases);
  EXPECT_NE(refusal("[model]\npreset = \"lama-1m\"\n")
                .find("run.toml:2: there is no preset 'lama-1m'; the nearest is "
                      "'llama-1m'"),
            std::string::npos);
}

TEST(RunToml, AWrongTypeOrRangeIsNamedWithWhatIsExpected) {
  const Bad cases[] = {
      {"model", "vocabulary = \"many\"", {"run.toml:2: 'vocabulary' in [model]", "('many')", "a whole number from 1"}},
      {"model", "kv_heads = 3", {"run.toml:1: heads (4) is not a multiple of kv_heads (3)"}},
      {"data", "seq = 0", {"run.toml:4: 'seq' in [data]", "(0)", "from 1 to 2147483647"}},
      {"data", "seq = 1.5", {"'seq'", "(1.5)", "a whole number"}},
      {"data", "eval_share = 1.0", {"'eval_share'", "at least 0 and below 1"}},
      {"data", "eval_share = nan", {"'eval_share'", "(nan)"}},
      {"data", "eval_share = [1]", {"'eval_share'", "(an array)"}},
      {"data", "text = 3", {"'text'", "a string"}},
      {"data", "text = [\"a\", 3]", {"'text'", "an array of strings"}},
      {"data", "text = []", {"text is empty"}},
      {"data", "text = \"\"", {"text = '' is not a path"}},
      {"data", "text = \"a\\u0000b\"", {"'text'", "control characters"}},
      {"data", "text = [\"a\", \"b\\nc\"]", {"'text'", "control characters"}},
      {"data", "text = {a = 1}", {"'text'", "(a table)"}},
      {"data", "tokens = true", {"'tokens'", "(true)", "a string"}},
      {"data", "synthetic = 3", {"'synthetic'", "a table"}},
      {"data", "synthetic.order = 3", {"'order' in [data.synthetic]", "from 1 to 2"}},
      {"data", "synthetic.vocabulary = 1", {"'vocabulary' in [data.synthetic]"}},
      {"data", "tokenizer = 5", {"'tokenizer'", "a string"}},
      {"data", "tokenizer = \"\"", {"tokenizer = '' is not a path"}},
      {"data", "tokenizer = \"bpe\"", {"tokenizer does nothing beside example"}},
      {"train", "steps = 1.5", {"run.toml:6: 'steps'", "from 0 to 1000000000000"}},
      {"train", "steps = -5", {"'steps'", "(-5)"}},
      {"train", "steps = 2024-01-01", {"'steps'", "a date"}},
      {"train", "global_batch = 0", {"'global_batch'"}},
      {"train", "eval_batches = 0", {"'eval_batches'"}},
      {"train", "keep = 0", {"'keep'"}},
      {"train", "seed = -1", {"'seed'", "from 0 to 2^63 - 1"}},
      {"train", "bad_values = \"ignore\"", {"'bad_values'", "one of \"stop\", \"skip\""}},
      {"optim", "name = \"adam\"", {"'name'", "one of \"adamw\", \"sgd\""}},
      {"optim", "lr = 0", {"'lr'", "above 0"}},
      {"optim", "lr = inf", {"'lr'", "(inf)"}},
      {"optim", "lr = \"1e-3\"", {"'lr'", "a number"}},
      {"optim", "betas = 0.9", {"'betas'", "[first, second]"}},
      {"optim", "betas = [0.9]", {"'betas'", "[first, second]"}},
      {"optim", "betas = [0.9, 1.0]", {"'betas'", "below 1"}},
      {"optim", "betas = [0.9, \"x\"]", {"'betas'"}},
      {"optim", "eps = 0.0", {"'eps'"}},
      {"optim", "momentum = 0.9", {"'momentum' does nothing with name = \"adamw\"", "remove it"}},
      {"optim", "name = \"sgd\"\nbetas = [0.9, 0.9]", {"run.toml:7: 'betas' does nothing with name = \"sgd\""}},
      {"optim", "name = \"sgd\"\nmomentum = 1", {"'momentum'", "below 1"}},
      {"optim", "weight_decay = -0.1", {"'weight_decay'"}},
      {"optim", "clip = -1", {"'clip'"}},
      {"optim", "schedule = \"step\"", {"'schedule'", "\"constant\", \"linear\", \"cosine\", \"wsd\""}},
      {"optim", "decay = 5", {"'decay' does nothing", "schedule = \"cosine\""}},
      {"optim", "schedule = \"constant\"\nfinal = 0.5", {"'final' does nothing"}},
      {"optim", "final = 1.5", {"'final'", "at most 1"}},
      {"layout", "micro = 0", {"'micro'"}},
      {"precision", "compute = \"int8\"", {"'compute'", "one of \"fp64\", \"fp32\", \"bf16\", \"fp16\", \"fp8\""}},
      {"precision", "compute = \"fp8\"\nloss_scale = 2", {"'loss_scale' does nothing with compute = \"fp8\""}},
      {"precision", "gradients = \"fp16\"", {"'gradients'", "one of \"fp32\", \"bf16\""}},
      {"precision", "moments = 16", {"'moments'", "one of \"fp32\", \"bf16\""}},
      {"precision", "loss_scale = 2", {"'loss_scale' does nothing with compute = \"fp32\"", "compute in \"fp16\""}},
      {"precision", "compute = \"bf16\"\nloss_scale = \"dynamic\"", {"run.toml:7: 'loss_scale' does nothing"}},
      {"precision", "compute = \"fp16\"\nloss_scale = 1000", {"loss_scale = 1000 is no scale", "a power of two"}},
      {"precision", "compute = \"fp16\"\nloss_scale = 0.5", {"loss_scale = 0.5 is no scale", "from 1 to 4294967296"}},
      {"precision", "compute = \"fp16\"\nloss_scale = 8589934592", {"is no scale"}},
      {"precision", "compute = \"fp16\"\nloss_scale = -2", {"is no scale"}},
      {"precision", "compute = \"fp16\"\nloss_scale = inf", {"is no scale"}},
      {"precision", "compute = \"fp16\"\nloss_scale = [2]", {"loss_scale = an array is no scale"}},
      {"precision", "compute = \"fp16\"\nloss_scale = \"high\"", {"loss_scale = 'high' is no scale", "\"dynamic\""}},
      {"precision", "compute = \"fp16\"\nloss_scale_growth = 0", {"'loss_scale_growth'", "from 1 to"}},
      {"precision",
       "compute = \"fp16\"\nloss_scale = 8\nloss_scale_growth = 9",
       {"run.toml:8: 'loss_scale_growth' does nothing without loss_scale = \"dynamic\"", "remove it"}},
      {"precision", "compute = \"fp16\"\ngradients = \"bf16\"", {"needs weights that compute in it", "\"fp16\""}},
      {"run", "out = \"\"", {"out is empty"}},
      {"run", "out = 3", {"'out'", "a string"}},
      {"run", "device = \"tpu\"", {"device is 'tpu'", "use \"cpu\" or \"cuda\""}},
      {"run", "threads = 5000", {"'threads'", "from 0 to 4096"}},
      {"run", "ranks = 2", {"ranks = 2 is not in this version"}},
      {"run", "out = ", {"run.toml:6: not valid TOML"}},
  };
  expect_refused(cases);
}

TEST(RunToml, TextThatIsNoTomlComesWithTheParsersReason) {
  const auto says = [](const std::string& text, const std::string& place, const std::string& reason) {
    const std::string words = refusal(text);
    EXPECT_EQ(words.find("a/" + place), 0u) << words;
    const std::size_t at = words.find(": ", place.size());
    EXPECT_NE(words.find(reason, at), std::string::npos) << words;
    EXPECT_NE(words.find("; "), std::string::npos) << words;
    EXPECT_EQ(words.find_first_of("\n\x01"), std::string::npos) << words;
    EXPECT_LT(words.size(), 400u) << words;
  };
  says("[train]\nsteps = \n", "run.toml:2: not valid TOML at column ", "value");
  says("[train]\nsteps = 3\nsteps = 4\n", "run.toml:3: not valid TOML at column ", "redefine existing");
  says("[train]\nsteps = 3x\n", "run.toml:2: not valid TOML at column ", "integer");
  says("[train\nsteps = 3\n", "run.toml:1: not valid TOML at column ", "table");
  says("[train]\nname = 'a\n", "run.toml:2: not valid TOML at column ", "string");
  says("a\x01" + std::string(5000, 'k') + "\n", "run.toml:1: not valid TOML at column ", ": ");
  says("[train]\nsteps = 1\n\n[#\n[data]\n", "run.toml:4: not valid TOML", "the parser cannot tell");  // it asserts
}

TEST(RunToml, TheUsualLayoutMayBeWrittenOut) {
  EXPECT_EQ(parse(with("layout",
                       "dp = 1\npp = 1\ncp = 1\ntp = 1\nzero = 0\nchunks = 1\nreduce = \"canonical\"\n"
                       "grad_sync = \"step\"\nschedule = \"1f1b\"\nsp = \"off\"\n"
                       "dp_kind = \"ddp\"\noverlap = \"on\"\nuneven = \"off\"\nbucket = 25")),
            parse(kBase));
}

TEST(RunToml, ContradictionsAreNamed) {
  const Bad cases[] = {
      {"data", "seq = 4000", {"run.toml:4: seq (4000) is beyond the model's max_positions (", "use seq = "}},
      {"data", "tokens = \"t\"", {"[data] names both tokens and example", "keep one"}},
      {"data", "text = \"t\"", {"run.toml:5: [data] names both text and example"}},
      {"data", "synthetic.seed = 1", {"[data] names both synthetic and example"}},
      {"layout",
       "micro = 3",
       {"run.toml:6: global_batch (8) is not a multiple of micro (3)", "use global_batch = 6 or 9"}},
      {"layout", "micro = 9", {"global_batch (8) is not a multiple of micro (9)", "use global_batch = 9 or a smaller"}},
      {"optim", "warmup = 101", {"run.toml:6: warmup (101) is longer than the run (100 steps)", "use warmup = 100"}},
      {"optim", "schedule = \"wsd\"", {"schedule \"wsd\" has no decay", "decay = 20"}},
      {"optim", "schedule = \"wsd\"\nwarmup = 51\ndecay = 50", {"run.toml:8: warmup (51) and decay (50) are together"}},
      {"train", "steps = 1000000000000\nglobal_batch = 2147483640", {"run.toml:6: steps times", "2^60"}},
      {"train", "steps = 1000000000000\nglobal_batch = 8000", {"2^60"}},  // 2^60.8, within 63 bits
      {"model",
       "vocabulary = 256",
       {"run.toml:2: the model's vocabulary (256) is smaller than the data's (257",
        "use model.vocabulary = 257 or more"}},
      {"model", "hf = \"x\"", {"has both preset and hf"}},
      {"precision",
       "gradients = \"bf16\"",
       {"run.toml:6: gradients = \"bf16\" needs", "compute is \"fp32\"; set compute = \"bf16\" or \"fp8\""}},
      {"precision",
       "master = \"bf16\"",
       {"run.toml:6: master = \"bf16\" needs",
        "compute is \"fp32\"; set compute = \"bf16\" or \"fp8\", or leave master out"}},
      {"precision", "compute = \"fp64\"\nmaster = \"fp32\"", {"run.toml:7: 'master' does nothing", "remove it"}},
      {"precision", "master = \"fp64\"", {"'master'", "one of \"fp32\", \"bf16\""}},
      {"precision",
       "compute = \"fp64\"\nmoments = \"bf16\"",
       {"run.toml:7: 'moments' does nothing with compute = \"fp64\"", "remove it"}},
      {"precision", "compute = \"fp64\"\ngradients = \"fp32\"", {"run.toml:7: 'gradients' does nothing"}},
      {"precision",
       "moments = \"bf16\"\n[optim]\nname = \"sgd\"\nmomentum = 0",
       {"run.toml:6: sgd with momentum = 0 keeps no moments; leave moments out"}},
  };
  expect_refused(cases);
  EXPECT_NE(
      refusal(kBase + "eval_share = 0\n[train]\neval_every = 5").find("run.toml:7: eval_every is 5 but eval_share"),
      std::string::npos);
  EXPECT_NE(refusal(without(kBase, "example = true")).find("run.toml:3: [data] names no source"), std::string::npos);
  EXPECT_NE(refusal("[model]\npreset = \"llama-1m\"").find("run.toml: [data] names no source"), std::string::npos);
  EXPECT_NE(refusal("").find("a/run.toml: [model] has neither preset, hf, from nor family"), std::string::npos);
  EXPECT_NE(refusal("model = 3").find("run.toml:1: there is no table [model]"), std::string::npos);
  EXPECT_NE(refusal("[[data]]\nexample = true\n[model]\npreset = \"llama-1m\"").find("it must be a table"),
            std::string::npos);
  const std::string synthetic = "[model]\npreset = \"llama-1m\"\nvocabulary = 63\n[data.synthetic]\n";
  EXPECT_NE(refusal(synthetic).find("vocabulary (63) is smaller than the data's (64, synthetic)"), std::string::npos);
  EXPECT_NE(refusal(synthetic + "branching = 5\nvocabulary = 4").find("run.toml:5: branching (5) is more"),
            std::string::npos);
  EXPECT_NE(refusal(synthetic + "vocabulary = 257").find("run.toml:5: a synthetic vocabulary of 257 is too large for"),
            std::string::npos);
  EXPECT_EQ(parse(without(kBase, "example = true") + "tokens = \"t\"", {"model.vocabulary=8"}).model.vocabulary, 8)
      << "a token file's vocabulary is known when it is opened";
}

TEST(RunToml, APrefixNeverCrashes) {
  const std::string text = tests::text_of(kSource / "configs/runs/gpt2-124m.toml");
  for (std::size_t length = 0; length < text.size(); length += 3) {
    try {
      parse(text.substr(0, length));
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
}

TEST(RunToml, DeepNestingAndLargeTextAreRefused) {
  std::string dotted = "a";
  while (dotted.size() < 15990) dotted += ".a";
  EXPECT_NE(refusal(dotted + " = 1").find("'a'"), std::string::npos);
  while (dotted.size() < 64000) dotted += ".a";
  EXPECT_NE(refusal(dotted + " = 1").find("more than 8000 dots"), std::string::npos);
  refusal("a = " + std::string(60000, '['));
  for (const char* header :
       {"[#", "\u00e9 = 1", "a = \u00e9", "[[[a]]]", "[[=", "[ [a] ]", "[", "[]"}) {  // toml++ asserts on some
    EXPECT_NE(refusal(header).find("not valid TOML"), std::string::npos);
  }
  EXPECT_NE(refusal(std::string(1 << 20, '#')).find("larger than 65536 bytes"), std::string::npos);
  EXPECT_EQ(parse(kBase + "#" + std::string(60000, 'x')), parse(kBase));
  EXPECT_THROW(read_run_file("/no/such/run.toml"), UserError);
}

}  // namespace
}  // namespace lockstep
