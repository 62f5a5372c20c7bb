// This file lets functions without a body stand in the package (see rules).
